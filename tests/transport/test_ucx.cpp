// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <replicator/job/wire/socket_address.hpp>
#include <replicator/transport/ucx.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../support/memory_in_use.hpp"
#include "../support/network_hosts.hpp"
#include "jobs.hpp"
#include "traffic.hpp"

namespace test_ucx {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using transport::Job;
using transport::Ucx;

static_assert(transport::Transport<Ucx>);
static_assert(!transport::PeerReadable<Ucx>);

namespace {

// Every process runs body on each of its endpoints, in a thread each.
template <class Body>
std::vector<ProcessResult> run_ranks(const std::vector<int>& process_of_rank, Body body) {
  return run_job(process_of_rank.back() + 1, [&](Job& job) {
    auto endpoints = Ucx::create(job, process_of_rank);
    return on_threads(endpoints, [&](Ucx& endpoint) { return body(job, endpoint); });
  });
}

void check_all_empty(const std::vector<ProcessResult>& results) {
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.text.empty());
  }
}

// Passes a word around the ring of ranks; returns what went wrong.
std::string pass_around(Ucx& endpoint, int rounds) {
  const int next = (endpoint.rank() + 1) % endpoint.size();
  const int previous = (endpoint.rank() + endpoint.size() - 1) % endpoint.size();
  const auto region = endpoint.allocate(128);
  for (int round = 0; round < rounds; ++round) {
    std::vector<transport::Ticket> first;
    std::vector<transport::Ticket> second;
    const bool starts = endpoint.rank() == 0;
    const auto send = [&] { return endpoint.send({region.data, 64}, next, {1, 0, 1}); };
    const auto recv = [&] { return endpoint.recv({region.data + 64, 64}, previous, {1, 0, 1}); };
    if (!wait_all(endpoint, {starts ? send() : recv()})) return "stuck; ";
    if (!wait_all(endpoint, {starts ? recv() : send()})) return "stuck; ";
  }
  return "";
}

}  // namespace

TEST_CASE("ucx carries messages of any size between all pairs, posted in any order") {
  const auto table = GENERATE(std::vector<int>{0}, std::vector<int>{0, 1}, std::vector<int>{0, 1, 2},
                              std::vector<int>{0, 1, 2, 3, 4}, std::vector<int>{0, 0, 1, 1, 1});
  check_all_empty(run_ranks(table, [](Job&, Ucx& endpoint) { return all_traffic(endpoint); }));
}

TEST_CASE("a message that is done may wait here for room, and flushed() says when it has left, whatever a third rank does") {
  const int full = GENERATE(1, 2), other = 3 - full;
  const auto results = run_job(3, [=](Job& job) -> std::string {
    auto endpoints = Ucx::create(job, {0, 1, 2});
    auto& endpoint = *endpoints[0];
    if (const auto wrong = all_pairs(endpoint, 8, true, false); !wrong.empty()) return wrong;  // connects
    job.barrier();
    std::vector<std::byte> message(1024);
    std::uint64_t count = 0;
    const transport::Slot to_full{1, 0, 1}, to_other{1, 0, 2};
    const auto send = [&](int peer, transport::Slot slot) { return wait_all(endpoint, {endpoint.send(message, peer, slot)}); };
    const auto receive = [&](transport::Slot slot) { return wait_all(endpoint, {endpoint.recv(message, 0, slot)}); };
    if (endpoint.rank() == 0) {
      if (!send(other, to_other)) return "stuck; ";
      if (!endpoint.wait([&] { return endpoint.flushed(); }, soon())) return "one message has not left; ";
      do {
        ++count;
        if (!send(full, to_full)) return "stuck; ";
      } while (endpoint.flushed() && count < 1'000'000);
      for (int i = 0; i < 3; ++i) endpoint.progress();
      if (endpoint.flushed()) return "a rank takes nothing, but all has left; ";
      if (endpoint.unsent_to() != full) return "who takes nothing is not named; ";
    }
    if (endpoint.rank() == other && !receive(to_other)) return "its message is missing; ";
    const auto counts = job.exchange(std::as_bytes(std::span{&count, 1}));
    if (endpoint.rank() == full) {
      std::memcpy(&count, counts[0].data(), sizeof count);
      while (count-- > 0)
        if (!receive(to_full)) return std::to_string(count + 1) + " messages are missing; ";
    }
    if (endpoint.rank() == 0 && (!endpoint.wait([&] { return endpoint.flushed(); }, soon()) || endpoint.unsent_to() != -1)) return "something has not left; ";
    job.barrier();  // makes no progress
    return "";
  });
  check_all_empty(results);
}

TEST_CASE("memory for messages is given back when its rank releases it") {
  Job job;
  auto endpoints = Ucx::create(job, {0});
  constexpr std::size_t bytes = 16 << 20;
  const auto before = resident_bytes();
  for (int round = 0; round < 20; ++round) {
    const auto region = endpoints[0]->allocate(bytes);
    std::memset(region.data, 1, bytes);
    endpoints[0]->release(region);
  }
  CHECK(resident_bytes() - before < static_cast<std::int64_t>(2 * bytes));
}

TEST_CASE("limits of files that leave ucx no room are an error, and no signal ends the process") {
  int refused = 0;
  for (const int more : {4, 9, 12, 16, 18, 20, 22, 26, 30, 60}) {
    const auto results = run_job(3, [more](Job& job) {
      rlimit files{};
      ::getrlimit(RLIMIT_NOFILE, &files);
      files.rlim_cur = transport::detail::open_files() + static_cast<rlim_t>(more);
      ::setrlimit(RLIMIT_NOFILE, &files);
      return pass_around(*Ucx::create(job, {0, 1, 2}).front(), 3);
    });
    INFO(more << " more files may be opened: " << describe(results));
    for (const auto& result : results) {
      CHECK(result.signal == 0);
      CHECK_FALSE(result.timed_out);
      if (result.exit_code == 0) CHECK(result.text.empty());
      if (more < 24) CHECK(result.exit_code == 1);
    }
    if (results[0].exit_code == 0) continue;
    ++refused;
    CHECK_THAT(describe(results), Catch::Contains("ucx: this process may open ") && Catch::Contains(" open, but connections to 2 other ranks may take 24 more: raise the limit, for instance by `ulimit -n 1024`"));
  }
  CHECK(refused == 7);
}

TEST_CASE("a limit of the address space that leaves ucx no room is an error") {
  const auto results = run_job(1, [](Job& job) {
    rlimit space{};
    ::getrlimit(RLIMIT_AS, &space);
    space.rlim_cur = transport::detail::address_space() + (std::uint64_t{32} << 20);
    ::setrlimit(RLIMIT_AS, &space);
    return pass_around(*Ucx::create(job, {0}).front(), 3);
  });
  CHECK(results[0].exit_code == 1);
  CHECK_THAT(results[0].text, Catch::Contains("ucx: this process may have ") && Catch::Contains("but UCX may take 64 more: raise the limit, for instance by `ulimit -v unlimited`"));
}

TEST_CASE("ucx keeps to the interface of the job") {
  auto all = environments(2);
  const auto results = run_processes(2, [&](int rank) {
    auto environment = all[static_cast<std::size_t>(rank)];
    environment.interface = "127.0.0.1";
    all.clear();
    Job job{environment, quick_options()};
    if (job.interface() != "lo") return "the interface is " + job.interface();
    auto endpoints = Ucx::create(job, {0, 1});
    return on_threads(endpoints, [&](Ucx& endpoint) { return pass_around(endpoint, 20); });
  });
  check_all_empty(results);
  // What a peer would be told: nothing of the other interfaces.
  const auto told = run_processes(1, [](int) {
    const auto keeping = transport::detail::UcxWorker{"lo"}.address();
    std::string text;
    for (const auto& entry : transport::detail::interface_addresses()) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&entry.address.four());
      if (entry.address.family() == AF_INET && !entry.loopback &&
          std::search(keeping.begin(), keeping.end(), bytes, bytes + sizeof(in_addr)) != keeping.end())
        text += entry.interface + " ";
    }
    return text;
  });
  check_all_empty(told);
}

TEST_CASE("a link that is down for a moment while UCX starts delays the job; if it stays down, each side reports the other as dead") {
  const auto why = NetworkHosts::missing();
  if (!why.empty()) {
    WARN("skipped: " << why);
    return;
  }
  const bool heals = GENERATE(true, false);
  const NetworkHosts network{2};
  const auto results = run_processes(2, [&](int process) -> std::string {
    network.enter(process);
    transport::ProcessEnvironment environment;
    environment.rank = process;
    environment.world_size = 2;
    environment.master_address = NetworkHosts::address(0);
    environment.master_port = 29512;
    environment.job_token = std::string(64, 'a');
    Job job{environment, quick_options()};
    job.barrier();
    std::thread link;
    if (process == 1) {
      network.cut(1);
      if (heals) link = std::thread{[&] {
                   std::this_thread::sleep_for(std::chrono::milliseconds{700});
                   network.heal(1);
                 }};
    }
    std::string text;
    try {
      const auto endpoints = Ucx::create(job, {0, 1});
      text = pass_around(*endpoints.front(), 20);
      if (text.empty()) job.leave();
    } catch (const CommunicationError& error) {
      text = error.what();
    }
    if (link.joinable()) link.join();
    return text;
  });
  INFO(describe(results));
  for (int process = 0; process < 2; ++process) {
    const auto& text = results[static_cast<std::size_t>(process)].text;
    if (heals) CHECK(text.empty());
    if (!heals) CHECK_THAT(text, Catch::Matchers::StartsWith("process " + std::to_string(1 - process) + " (pid ") && Catch::Matchers::EndsWith("died or was stopped: no heartbeat for 1.5 s"));
  }
}

TEST_CASE("waiting for ucx is not polling: many processes on few cores stay quick") {
  const auto start = transport::Clock::now();
  check_all_empty(run_ranks({0, 1, 2, 3, 4}, [](Job&, Ucx& endpoint) { return pass_around(endpoint, 400); }));
  CHECK(transport::Clock::now() - start < std::chrono::seconds{4});  // 2000 messages; at 3.9 ms each it would be 8 s
}

TEST_CASE("who waits for ucx hears of a dead peer in one sentence") {
  const bool killed = GENERATE(true, false);
  const int victim = GENERATE(1, 0);
  const auto results = run_ranks({0, 0, 1, 2}, [&](Job& job, Ucx& endpoint) -> std::string {
    pass_around(endpoint, 3);
    if (job.rank() == victim && endpoint.rank() != 1) ::raise(killed ? SIGKILL : SIGSTOP);
    return pass_around(endpoint, 10000000);
  });
  INFO(describe(results));
  const auto& text = results[2].text;
  CHECK_THAT(text, Catch::Matchers::StartsWith("process " + std::to_string(victim) + " (pid "));
  CHECK_THAT(text, Catch::Matchers::EndsWith(killed ? "died: its connection closed"
                                                    : "died or was stopped: no heartbeat for 1.5 s"));
  if (victim == 1) CHECK(results[0].text == text + text);  // two ranks
  for (const auto& result : results) CHECK((result.seconds < 5 && !result.timed_out));
}

TEST_CASE("messages of unequal size over ucx end the job for all") {
  const std::size_t expected = GENERATE(std::size_t{32}, std::size_t{128});
  const auto results = run_ranks({0, 1, 2}, [&](Job&, Ucx& endpoint) -> std::string {
    const auto region = endpoint.allocate(128);
    std::vector<transport::Ticket> tickets;
    if (endpoint.rank() == 0) tickets.push_back(endpoint.send({region.data, 64}, 1, {3, 0, 7}));
    if (endpoint.rank() == 1) tickets.push_back(endpoint.recv({region.data, expected}, 0, {3, 0, 7}));
    endpoint.wait([&] { return endpoint.rank() == 1 && endpoint.done(tickets[0]); }, soon());
    return "passed";
  });
  INFO(describe(results));
  const std::string sent = expected == 128 ? "64" : "more than 32";
  for (const auto& result : results)
    CHECK(result.text == "rank 0 sent " + sent +
                             " bytes (collective 3, channel 0, instruction 7), but rank 1 expects " +
                             std::to_string(expected) + ": their programs differ");
}

TEST_CASE("who is dead before it is connected to is named by all in one sentence") {
  const auto results = run_job(3, [](Job& job) -> std::string {
    auto endpoints = Ucx::create(job, {0, 1, 2});
    job.barrier();
    if (job.rank() == 1) ::raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    const auto region = endpoints[0]->allocate(64);
    wait_all(*endpoints[0], {endpoints[0]->send({region.data, 64}, 1, {1, 0, 1}), endpoints[0]->recv({region.data, 64}, 1, {1, 0, 1})});
    return "passed";
  });
  INFO(describe(results));
  CHECK_THAT(results[0].text, Catch::Contains("error: process 1 (pid ") && Catch::EndsWith("died: its connection closed"));
  CHECK_THAT(results[2].text, Catch::EndsWith(results[0].text.substr(results[0].text.find("error: "))));
}

TEST_CASE("messages that nobody asked for any more leave no word on standard output") {
  const std::size_t bytes = GENERATE(std::size_t{64}, std::size_t{1} << 20);  // the larger one is offered, not sent
  const auto results = run_job(2, [&](Job& job) -> std::string {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);  // where UCX writes
    std::string text;
    {
      auto endpoints = Ucx::create(job, {0, 1});
      auto& endpoint = *endpoints[0];
      const auto region = endpoint.allocate(bytes);
      if (endpoint.rank() == 0) {
        endpoint.send({region.data, bytes}, 1, {1, 0, 1});
        text = wait_all(endpoint, {endpoint.send({region.data, 8}, 1, {2, 0, 1})}) ? "" : "stuck";
      } else {
        text = wait_all(endpoint, {endpoint.recv({region.data, 8}, 0, {2, 0, 1})}) ? "" : "stuck";
      }
      job.barrier();
    }
    job.leave();
    std::fflush(stdout);
    return text;
  });
  check_all_empty(results);
}

TEST_CASE("endpoints that are done first do not disturb the others") {
  check_all_empty(run_ranks({0, 1, 2}, [](Job&, Ucx& endpoint) -> std::string {
    const auto region = endpoint.allocate(1 << 20);
    std::vector<transport::Ticket> tickets;
    if (endpoint.rank() == 0) {  // leaves as soon as its message is on its way
      tickets.push_back(endpoint.send({region.data, 1 << 20}, 1, {1, 0, 0}));
      return wait_all(endpoint, tickets) ? "" : "stuck";
    }
    if (endpoint.rank() == 1) tickets.push_back(endpoint.recv({region.data, 1 << 20}, 0, {1, 0, 0}));
    if (!wait_all(endpoint, tickets)) return "stuck";
    endpoint.wait([] { return false; }, transport::Clock::now() + std::chrono::milliseconds{400});
    const int other = 3 - endpoint.rank();
    return wait_all(endpoint, {endpoint.send({region.data, 64}, other, {2, 0, 0}),
                               endpoint.recv({region.data + 64, 64}, other, {2, 0, 0})})
               ? ""
               : "stuck";
  }));
}

TEST_CASE("a wait for ucx ends at its time, and at an abort") {
  Job job;
  auto endpoints = Ucx::create(job, {0});
  const auto start = transport::Clock::now();
  CHECK_FALSE(endpoints[0]->wait([] { return false; }, start + std::chrono::milliseconds{30}));
  CHECK(transport::Clock::now() - start >= std::chrono::milliseconds{30});
  std::thread other{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{30});
    job.abort("enough", 0);
  }};
  CHECK_THROWS_WITH(endpoints[0]->wait([] { return false; }, soon()), "enough");
  other.join();
}

TEST_CASE("what UCX answers becomes an error of the right family") {
  CHECK_THROWS_AS(transport::detail::throw_ucx(UCS_ERR_INVALID_PARAM, "x", -1), BuildError);
  CHECK_THROWS_AS(transport::detail::throw_ucx(UCS_ERR_NO_MEMORY, "x", -1), DeviceError);
  CHECK_THROWS_AS(transport::detail::throw_ucx(UCS_ERR_CONNECTION_RESET, "x", 2), CommunicationError);
  CHECK_THROWS_WITH(transport::detail::throw_ucx(UCS_ERR_NO_DEVICE, "creating a worker", -1),
                    "ucx: creating a worker: No such device: UCX may use no network that is up on this host. `ip link` lists them; --interface, UCX_TLS and UCX_NET_DEVICES choose among them");
  CHECK_THROWS_WITH(transport::detail::throw_ucx(UCS_ERR_UNREACHABLE, "connecting rank 0 to rank 1", 2),
                    "ucx: connecting rank 0 to rank 1: Destination is unreachable");
}

}  // namespace test_ucx
