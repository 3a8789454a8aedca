// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <replicator/transport/shared_memory.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../support/memory_in_use.hpp"
#include "jobs.hpp"
#include "traffic.hpp"

namespace test_shared_memory {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using transport::Job;
using transport::SharedMemory;

static_assert(transport::Transport<SharedMemory>);
static_assert(transport::PeerReadable<SharedMemory>);

namespace {

// Every process runs body on each of its endpoints, in a thread each.
template <class Body>
std::vector<ProcessResult> run_ranks(const std::vector<int>& process_of_rank, Body body) {
  const int processes = process_of_rank.back() + 1;
  return run_job(processes, [&](Job& job) {
    auto endpoints = SharedMemory::create(job, process_of_rank);
    return on_threads(endpoints, [&](SharedMemory& endpoint) { return body(job, endpoint); });
  });
}

void check_all_empty(const std::vector<ProcessResult>& results) {
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.text.empty());
  }
}

// Without the files of LLVM's OpenMP runtime and of Open MPI: both make one for each process, and other tests run at the same time.
std::set<std::string> names_in(const char* folder) {
  std::set<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) result.insert(entry.path().filename());
  std::erase_if(result, [](const std::string& name) { return name.starts_with("__KMP_REGISTERED_LIB_") || name.starts_with("vader_segment."); });
  return result;
}

// A word per rank that all count up together: each rank waits until all others have reached its own number.
std::string count_together(SharedMemory& endpoint, int rounds) {
  const auto region = endpoint.allocate(64);
  std::atomic_ref own{*reinterpret_cast<std::uint64_t*>(region.data)};
  for (std::uint64_t round = 1; round <= static_cast<std::uint64_t>(rounds); ++round) {
    own.store(round, std::memory_order_seq_cst);
    endpoint.notify();
    const bool all = endpoint.wait(
        [&] {
          for (int r = 0; r < endpoint.size(); ++r) {
            auto* word = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(endpoint.peer(region, r)));
            if (std::atomic_ref{*word}.load(std::memory_order_acquire) < round) return false;
          }
          return true;
        },
        soon());
    if (!all) return "stuck in round " + std::to_string(round) + "; ";
  }
  return "";
}

}  // namespace

TEST_CASE("shared memory carries messages of any size between all pairs, posted in any order") {
  const auto table = GENERATE(std::vector<int>{0}, std::vector<int>{0, 1}, std::vector<int>{0, 1, 2},
                              std::vector<int>{0, 1, 2, 3, 4}, std::vector<int>{0, 0, 1, 1, 1});
  check_all_empty(run_ranks(table, [](Job&, SharedMemory& endpoint) { return all_traffic(endpoint); }));
}

TEST_CASE("a word that a peer stores is seen, also by who sleeps") {
  const auto table = GENERATE(std::vector<int>{0, 1}, std::vector<int>{0, 1, 2, 3, 4}, std::vector<int>{0, 0, 1});
  check_all_empty(run_ranks(table, [](Job&, SharedMemory& endpoint) { return count_together(endpoint, 2000); }));
}

// Rank 0 takes a message of rank 1 out of its ring and answers rank 2 in one call, at about the time when rank 2 falls asleep. A lost
// wake-up shows here in about half of the runs on a quiet machine, and seldom on a busy one.
TEST_CASE("who falls asleep is woken, also by a rank that serves several peers at once") {
  check_all_empty(run_ranks({0, 1, 2}, [](Job&, SharedMemory& endpoint) -> std::string {
    using namespace std::chrono_literals;
    const auto begin = transport::Clock::now();
    const auto settle = [&](transport::Ticket ticket) { return wait_all(endpoint, {ticket}); };
    std::byte more{1}, from_1{}, from_2{};
    for (std::uint32_t round = 0; more != std::byte{0}; ++round) {
      const transport::Slot slot{0, 0, round};
      const auto message = std::span{&more, 1};
      bool all = true;
      if (endpoint.rank() == 0) {
        if (transport::Clock::now() > begin + 2s) more = {};
        all = settle(endpoint.recv({&from_2, 1}, 2, slot));
        const auto first = endpoint.recv({&from_1, 1}, 1, slot);
        all = all && settle(endpoint.send(message, 1, slot));
        const auto until = transport::Clock::now() + std::chrono::microseconds{60 + round % 60};
        while (transport::Clock::now() < until) {}
        all = all && settle(endpoint.send(message, 2, slot)) && settle(first);
      } else if (endpoint.rank() == 1) {
        all = settle(endpoint.recv(message, 0, slot)) && settle(endpoint.send(message, 0, slot));
      } else {
        all = settle(endpoint.send(message, 0, slot)) && settle(endpoint.recv(message, 0, slot));
      }
      if (!all) return "stuck in round " + std::to_string(round);
    }
    return "";
  }));
}

TEST_CASE("regions are zero, aligned, apart from each other, and the same for all peers, who may write them") {
  check_all_empty(run_ranks({0, 0, 1, 2}, [](Job& job, SharedMemory& endpoint) {
    std::string wrong;
    std::vector<transport::Region> regions;
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{64}, std::size_t{100000}, std::size_t{0}, std::size_t{7}}) {
      regions.push_back(endpoint.allocate(bytes));
      const auto& region = regions.back();
      if (region.id != regions.size() - 1) wrong += "id; ";
      if (region.bytes != bytes) wrong += "bytes; ";
      if (reinterpret_cast<std::uintptr_t>(region.data) % 64 != 0) wrong += "alignment; ";
      for (std::size_t i = 0; i < bytes; ++i) {
        if (region.data[i] != std::byte{0}) wrong += "not zero; ";
        region.data[i] = static_cast<std::byte>(endpoint.rank() + 1 + static_cast<int>(region.id));
      }
    }
    wrong += count_together(endpoint, 1);  // all have written
    for (int r = 0; r < endpoint.size(); ++r)
      for (const auto& region : regions)
        for (std::size_t i = 0; i < region.bytes; ++i)
          if (endpoint.peer(region, r)[i] != static_cast<std::byte>(r + 1 + static_cast<int>(region.id))) wrong += "x";
    wrong += count_together(endpoint, 1);
    const int next = (endpoint.rank() + 1) % endpoint.size(), previous = (next + endpoint.size() - 2) % endpoint.size();
    for (const auto& region : regions)
      for (std::size_t i = 0; i < region.bytes; ++i) endpoint.writable_peer(region, next)[i] = static_cast<std::byte>(100 + endpoint.rank());
    wrong += count_together(endpoint, 1);
    for (const auto& region : regions)
      for (std::size_t i = 0; i < region.bytes; ++i)
        if (region.data[i] != static_cast<std::byte>(100 + previous)) wrong += "w";
    job.check();
    return wrong;
  }));
}

TEST_CASE("who waits, awake or asleep, hears of a dead peer in one sentence") {
  const bool killed = GENERATE(true, false);
  const auto before = names_in("/dev/shm");
  const auto results = run_ranks({0, 0, 1, 2}, [&](Job& job, SharedMemory& endpoint) -> std::string {
    count_together(endpoint, 3);
    job.begin("step", 12);
    if (job.rank() == 1) ::raise(killed ? SIGKILL : SIGSTOP);
    return count_together(endpoint, 1000000);
  });
  INFO(describe(results));
  const auto& text = results[2].text;
  CHECK_THAT(text, Catch::Matchers::StartsWith("process 1 (pid "));
  CHECK_THAT(text, Catch::Matchers::EndsWith(killed ? "died: its connection closed during step 12"
                                                    : "died or was stopped: no heartbeat for 1.5 s during step 12"));
  CHECK(results[0].text == text + text);  // two ranks
  for (const std::size_t survivor : {std::size_t{0}, std::size_t{2}}) CHECK(results[survivor].seconds < 5);
  CHECK(names_in("/dev/shm") == before);
}

TEST_CASE("messages of unequal size end the job for all, with both sizes") {
  const auto results = run_ranks({0, 1, 2}, [](Job&, SharedMemory& endpoint) -> std::string {
    const auto region = endpoint.allocate(128);
    std::vector<transport::Ticket> tickets;
    if (endpoint.rank() == 0) tickets.push_back(endpoint.send({region.data, 64}, 1, {3, 0, 7}));
    if (endpoint.rank() == 1) tickets.push_back(endpoint.recv({region.data, 128}, 0, {3, 0, 7}));
    endpoint.wait([] { return false; }, soon());
    return "passed";
  });
  INFO(describe(results));
  for (const auto& result : results)
    CHECK(result.text ==
          "rank 0 sent 64 bytes (collective 3, channel 0, instruction 7), but rank 1 expects 128: "
          "their programs differ");
}

TEST_CASE("unequal allocations and tables that name no process are refused") {
  Job job;
  auto endpoints = SharedMemory::create(job, {0, 0});
  endpoints[0]->allocate(64);
  CHECK_THROWS_WITH(
      endpoints[1]->allocate(128),
      Catch::Matchers::Contains("rank 1 allocates 128 bytes as shared region 0, but rank 0 allocates 64"));
  CHECK_THROWS_WITH(SharedMemory::create(job, {0, 1}),
                    "rank 1 is said to be in process 1, but the job has 1 processes");
}

TEST_CASE("a shared region lives until all ranks have released it, and then gives its memory back") {
  check_all_empty(run_ranks({0, 0, 1}, [](Job&, SharedMemory& endpoint) {
    constexpr std::size_t bytes = 8 << 20;
    std::string wrong;
    for (int round = 0; round < 20; ++round) {
      const auto region = endpoint.allocate(bytes);
      std::memset(region.data, endpoint.rank() + 1, bytes);
      if (endpoint.rank() != 2) endpoint.release(region);  // while rank 2 may not have allocated its own
      wrong += count_together(endpoint, 1);
      for (int r = 0; endpoint.rank() == 2 && r < 3; ++r)
        if (endpoint.peer(region, r)[bytes - 1] != static_cast<std::byte>(r + 1)) wrong += "lost in round " + std::to_string(round) + "; ";
      if (endpoint.rank() == 2) endpoint.release(region);
    }
    wrong += count_together(endpoint, 1);
    if (const auto left = bytes_of_memory_files(); left > static_cast<std::int64_t>(2 * bytes)) wrong += std::to_string(left) + " B are left in files; ";
    if (const auto left = resident_bytes(); left > 256 << 20) wrong += std::to_string(left) + " B are resident; ";
    return wrong;
  }));
}

TEST_CASE("any number of regions is allocated one after the other, and sizes are compared in each") {
  Job job;
  auto endpoints = SharedMemory::create(job, {0, 0});
  for (int i = 0; i < 10000; ++i)
    for (const auto& endpoint : endpoints) endpoint->release(endpoint->allocate(64));
  endpoints[0]->allocate(64);
  CHECK_THROWS_WITH(endpoints[1]->allocate(128), Catch::Matchers::Contains("rank 1 allocates 128 bytes as shared region 10000, but rank 0 allocates 64"));
}

TEST_CASE("a wait ends at its time, and at an abort") {
  Job job;
  auto endpoints = SharedMemory::create(job, {0});
  const auto start = transport::Clock::now();
  CHECK_FALSE(endpoints[0]->wait([] { return false; }, start + std::chrono::milliseconds{30}));
  CHECK(transport::Clock::now() - start >= std::chrono::milliseconds{30});
  std::thread other{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{30});
    job.abort("enough", 0);
  }};
  CHECK_THROWS_WITH(endpoints[0]->wait([] { return false; }, soon()), "enough");
  other.join();
  CHECK_THROWS_AS(endpoints[0]->allocate(1), CommunicationError);
}

TEST_CASE("processes of one machine share a host") {
  const auto results = run_job(3, [](Job& job) -> std::string {
    const auto hosts = transport::host_of_processes(job);
    return transport::same_host(job) && hosts == std::vector<int>{0, 0, 0} ? "same" : "different";
  });
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "same");
}

TEST_CASE("more processes than a queue of connections holds take each other's memory") {
  constexpr int count = 12;
  const auto results = run_job(count, [](Job& job) -> std::string {
    // A queue of 1, instead of a limit for the whole machine.
    transport::detail::exchange_descriptors(job, {}, 1);
    const int standard[] = {0, 1};
    const auto all = transport::detail::exchange_descriptors(job, standard, 1);
    return std::all_of(all.begin(), all.end(), [](const auto& files) { return files.size() == 2; }) ? "" : "files are missing";
  });
  check_all_empty(results);
}

TEST_CASE("who dies before it has taken the others' memory is named by all of them") {
  const int victim = GENERATE(0, 1);
  const auto results = run_job(3, [victim](Job& job) -> std::string {
    if (job.rank() == victim) {
      job.barrier("shared memory: sockets");  // it says that it listens, but nobody can connect
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
      ::raise(SIGKILL);
    }
    transport::detail::exchange_descriptors(job, {});
    return "passed";
  });
  INFO(describe(results));
  const auto& first = results[victim == 0 ? 1 : 0].text;
  CHECK_THAT(first, Catch::StartsWith("error: process " + std::to_string(victim) + " (pid ") &&
                        Catch::EndsWith(") died: its connection closed"));
  for (std::size_t r = 0; r < results.size(); ++r)
    if (static_cast<int>(r) != victim) CHECK(results[r].text == first);
}

TEST_CASE("memory that another user's process hands over is not taken") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can start a process of another user");
    return;
  }
  const auto results = run_job(2, [](Job& job) -> std::string {
    const auto file_with = [](char content) {
      transport::FileDescriptor file{::memfd_create("test", MFD_CLOEXEC)};
      if (::write(file.get(), &content, 1) != 1) throw Error{"no memory"};
      return file;
    };
    // The names of abstract sockets stand in /proc/net/unix, for everybody.
    if (job.rank() == 1) {
      const auto stranger = ::fork();
      if (stranger == 0) {
        if (::setuid(65534) != 0) ::_exit(1);
        const auto file = file_with('x');
        const int number = file.get();
        sockaddr_un address;
        const auto length = transport::detail::abstract_address(job.token(), 0, address);
        const transport::FileDescriptor socket{::socket(AF_UNIX, SOCK_SEQPACKET, 0)};
        for (int tries = 0; tries < 500; ++tries) {
          if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0)
            ::_exit(transport::detail::send_parcel(socket.get(), {job.token(), 1, 0}, {&number, 1}) ? 0 : 1);
          ::usleep(10000);
        }
        ::_exit(1);
      }
      int status = 1;
      if (::waitpid(stranger, &status, 0) != stranger || status != 0) return "the stranger did not come so far";
    }
    const auto mine = file_with(job.rank() == 0 ? 'a' : 'b');
    const int number = mine.get();
    const auto files = transport::detail::exchange_descriptors(job, {&number, 1});
    std::string content;
    for (const auto& theirs : files) {
      char one = '?';
      if (theirs.size() == 1 && ::pread(theirs[0].get(), &one, 1, 0) == 1) content += one;
    }
    return content;
  });
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "ab");
}

}  // namespace test_shared_memory
