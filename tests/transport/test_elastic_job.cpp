// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <replicator/job/elastic/elastic_job.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../support/programs.hpp"
#include "elastic_jobs.hpp"
#include "jobs.hpp"

namespace test_elastic_job {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using transport::ElasticJob;
using transport::FileDescriptor;
using transport::Job;

namespace {

std::vector<ProcessResult> run_elastic(int count, const std::function<std::string(int, ElasticJob&)>& body) {
  auto all = environments(count);
  return run_processes(count, [&](int rank) {
    const auto environment = all[static_cast<std::size_t>(rank)];
    all.clear();  // process 0 alone keeps the listener
    ElasticJob job{environment, quick_options()};
    return body(rank, job);
  });
}

// "rank of size" after each loss of the process that is meant to be lost; those of a round are lost at once.
std::string lose(int self, ElasticJob& elastic, const std::vector<std::vector<int>>& rounds) {
  std::string text;
  auto job = elastic.job();
  for (const auto& victims : rounds) {
    meet(*job);
    if (std::find(victims.begin(), victims.end(), self) != victims.end()) ::raise(SIGKILL);
    for (std::size_t lost = 0; lost < victims.size();) {
      const int before = job->size();
      while (!job->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
      job = elastic.after(*job);
      lost += static_cast<std::size_t>(before - job->size());
    }
    text += std::to_string(job->rank()) + " of " + std::to_string(job->size()) + "; ";
  }
  job->leave();
  return text;
}

// A job of `count`, of which the victim is stopped until the others have met again. Each of them says its rank: "0 of 2".
std::vector<ProcessResult> run_with_stopped(int count, int victim) {
  return run_elastic(count, [victim](int self, ElasticJob& elastic) {
    auto job = elastic.job();
    meet(*job);
    const auto pid = static_cast<pid_t>(job->process(victim).pid);
    if (self == victim) ::raise(SIGSTOP);
    while (!job->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    job = elastic.after(*job);
    if (job->rank() == 0) ::kill(pid, SIGCONT);
    for (int i = 0; i < 1000 && ::kill(pid, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    job->leave();
    return std::to_string(job->rank()) + " of " + std::to_string(job->size());
  });
}

}  // namespace

TEST_CASE("what is left of a job meets again, whoever dies, down to one") {
  const auto results = run_elastic(4, [](int self, ElasticJob& job) { return lose(self, job, {{0}, {2}, {1}}); });
  INFO(describe(results));
  for (const int victim : {0, 1, 2}) CHECK(results[static_cast<std::size_t>(victim)].signal == SIGKILL);
  CHECK(results[3].exit_code == 0);
  CHECK(results[3].text.ends_with("2 of 3; 1 of 2; 0 of 1; "));
}

TEST_CASE("a job survives several deaths at once, that of process 0 among them") {
  const auto results = run_elastic(5, [](int self, ElasticJob& job) { return lose(self, job, {{0, 1, 3}}); });
  INFO(describe(results));
  CHECK(results[2].exit_code == 0);
  CHECK(results[2].text.ends_with("0 of 2; "));
  CHECK(results[4].text.ends_with("1 of 2; "));
}

TEST_CASE("a process that was stopped is told that the others went on without it") {
  for (const int victim : {0, 1}) {
    const auto results = run_with_stopped(3, victim);
    INFO(describe(results));
    CHECK(results[static_cast<std::size_t>(victim)].exit_code == 1);
    CHECK(results[static_cast<std::size_t>(victim)].text.find("the others go on without it") != std::string::npos);
    CHECK(results[static_cast<std::size_t>(1 - victim)].text.ends_with("0 of 2"));
    CHECK(results[2].text.ends_with("1 of 2"));
  }
}

TEST_CASE("a process that fails by itself is not of what is left, also where it ends just when it is told so") {
  for (int trial = 0; trial < 40; ++trial) {
    const auto results = run_elastic(2, [](int self, ElasticJob& elastic) -> std::string {
      const auto job = elastic.job();
      job->barrier();
      if (self == 1) throw DataError{"an error of its own"};
      while (!job->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
      return std::to_string(elastic.after(*job)->size());
    });
    INFO("trial " << trial << "\n"
                  << describe(results));
    CHECK(results[0].text.ends_with("1"));
    CHECK(results[1].exit_code == 1);
  }
}

// In the place of 1 come: 4, of another program; 5, which waits for what never comes; then 3, for the same place.
TEST_CASE("a process that is started again is handed the state and meets the others, also as process 0, and one of another program does not") {
  const Bytes state(300000, std::byte{7});
  for (const int victim : {0, 1}) {
    const Pipe death, refused, waiting;
    const auto left = [&](ElasticJob& elastic, pid_t) {
      if (elastic.job()->rank() == 0) death.say("xxx");
      bool told = false;
      const auto fits = [&](const Bytes& wish) {
        if (wish == bytes_of("never") && !std::exchange(told, true)) waiting.say("x");
        return wish == bytes_of("step");
      };
      return await_return(elastic, state, {.fits = fits});
    };
    const auto results = lose_one(victim, victim == 0 ? 4 : 6, left, [&](int child, const auto& environment) {
      if (child == 3 && victim == 1) refused.await(), waiting.await();
      else death.await();
      try {
        ElasticJob elastic{environment, quick_options(), admission(child == 4 ? "another" : "same")};
        return come_back(elastic, child == 5 ? "never" : "step", state);
      } catch (const Error&) {
        if (child == 4) refused.say("x");
        throw;
      }
    });
    INFO(describe(results));
    for (int child = 0; child < 3; ++child)
      if (child != victim)
        CHECK(results[static_cast<std::size_t>(child)].text.ends_with(std::to_string(child) + " of 3, newest " + std::to_string(victim)));
    CHECK(results[3].text.ends_with(std::to_string(victim) + " of 3, all"));
    if (victim == 0) continue;
    CHECK(results[4].exit_code == 1);
    CHECK(results[4].text.find(" is another") != std::string::npos);
    CHECK(results[5].exit_code == 1);
    CHECK(results[5].text.find(" came for the same place: each needs a RANK of its own") != std::string::npos);
  }
}

// The first dies while it is given the state, the second when it has it and all are about to meet it.
TEST_CASE("a process that comes back and dies in the midst of it stays outside, and the next one is taken in") {
  const Bytes state(300000, std::byte{7});
  const Pipe pids, next;
  const auto kill_one = [&] {
    pid_t pid = 0;
    static_cast<void>(!::read(pids.ends[0], &pid, sizeof pid));
    if (pid > 0) ::kill(pid, SIGKILL);
    next.say("x");
  };
  const auto left = [&](ElasticJob& elastic, pid_t) {
    if (elastic.job()->rank() == 0) next.say("x");
    int killed = 0;
    const auto kill_two = [&](bool taken) {
      if (taken ? killed != 1 : killed != 0) return;
      ++killed;
      kill_one();
    };
    return await_return(elastic, state, {.handing = kill_two});
  };
  const auto results = lose_one(1, 6, left, [&](int, const auto& environment) {
    next.await();
    const auto self = ::getpid();
    static_cast<void>(!::write(pids.ends[1], &self, sizeof self));
    ElasticJob elastic{environment, quick_options(), admission("same")};
    return come_back(elastic, "step", state);
  });
  INFO(describe(results));
  int killed = 0, back = 0;
  for (int child = 3; child < 6; ++child) {
    killed += results[static_cast<std::size_t>(child)].signal == SIGKILL;
    back += results[static_cast<std::size_t>(child)].text.ends_with("1 of 3, all");
  }
  CHECK(killed == 2);
  CHECK(back == 1);
  CHECK(results[0].text.ends_with("0 of 3, newest 1"));
  CHECK(results[2].text.ends_with("2 of 3, newest 1"));
}

TEST_CASE("a process that was only stopped, and in whose place another one came, ends when it goes on, and harms nobody") {
  const Pipe stopped;
  const auto left = [&](ElasticJob& elastic, pid_t victim) {
    const bool first = elastic.job()->rank() == 0;
    if (first) stopped.say("x");
    const auto wake = [&] {
      if (first) ::kill(victim, SIGCONT);
      for (int i = 0; i < 1000 && ::kill(victim, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    };
    return await_return(elastic, {}, {.joined = wake});
  };
  const auto come = [&](int, const auto& environment) {
    stopped.await();
    ElasticJob elastic{environment, quick_options(), admission("same")};
    return come_back(elastic, "step", {});
  };
  const auto results = lose_one(1, 4, left, come, SIGSTOP);
  INFO(describe(results));
  CHECK(results[1].exit_code == 1);
  CHECK(results[1].text.find("the others go on without it") != std::string::npos);
  CHECK(results[0].text.ends_with("0 of 3, newest 1"));
  CHECK(results[2].text.ends_with("2 of 3, newest 1"));
  CHECK(results[3].text.ends_with("1 of 3, all"));
}

TEST_CASE("a second process of a rank that is in a running job ends after the connect deadline, and says why") {
  const int port = free_port();
  const Pipe met, refused;
  const auto results = run_processes(3, [&](int child) -> std::string {
    transport::ProcessEnvironment environment;
    environment.rank = std::min(child, 1);
    environment.world_size = 2;
    environment.master_address = "127.0.0.1";
    environment.master_port = static_cast<std::uint16_t>(port);
    auto options = quick_options();
    if (child == 2) {
      met.await();
      options.connect_deadline = std::chrono::seconds{1};
      options.report_after = std::chrono::milliseconds{300};
      try {
        transport::ElasticJob elastic{environment, options, admission("same")};
      } catch (const CommunicationError& error) {
        refused.say("..");
        return error.what();
      }
      return "taken in";
    }
    transport::ElasticJob elastic{environment, options, admission("same")};
    const auto job = elastic.job();
    job->barrier();
    if (child == 0) met.say(".");
    refused.await();
    job->barrier();
    job->leave();
    return "done";
  });
  INFO(describe(results));
  CHECK(results[0].text == "done");
  CHECK(results[1].text == "done");
  CHECK_THAT(results[2].text, Catch::Contains("the job is at work there, and the process with this RANK is still in it") &&
                                  Catch::Contains("comes for a place in the job at 127.0.0.1") && Catch::Contains("each needs a RANK of its own") &&
                                  !Catch::Contains("waits for others"));
  CHECK(results[2].seconds < 10);
}

TEST_CASE("a process that comes back when the job has done its last step says that it finds nobody") {
  const Pipe death;
  const auto left = [&](ElasticJob& elastic, pid_t) -> std::string {
    const auto job = elastic.job();
    if (job->rank() == 0) death.say("x");
    while (job->rank() == 0 && !elastic.somebody_waits()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    job->leave();
    return "left";
  };
  const auto results = lose_one(2, 4, left, [&](int, const auto& environment) {
    death.await();
    auto options = quick_options();
    options.connect_deadline = std::chrono::milliseconds{500};
    ElasticJob elastic{environment, options, admission("same")};
    return come_back(elastic, "step", {});
  });
  INFO(describe(results));
  CHECK(results[0].text.ends_with("left"));
  CHECK(results[1].text.ends_with("left"));
  CHECK(results[3].exit_code == 1);
  CHECK(results[3].text.find("process 2 cannot reach process 0") != std::string::npos);
}

TEST_CASE("who does not take what it is given, or too slowly, holds nobody up for long") {
  transport::JobOptions options;
  options.dead_after = std::chrono::milliseconds{500};
  options.exchange_deadline = std::chrono::milliseconds{1200};
  const Bytes state(4 << 20);
  for (const std::string how : {"nothing", "slowly", "gone", "aborted"}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    transport::detail::AdmissionRequest request{transport::detail::Link{FileDescriptor{ends[0]}}, {}, {}};
    FileDescriptor other{ends[1]};
    if (how == "gone") other.close();
    std::atomic<bool> over{false};
    std::thread reader{[&] {
      for (char chunk[32768]; how == "slowly" && !over; std::this_thread::sleep_for(std::chrono::milliseconds{10}))
        static_cast<void>(!::read(other.get(), chunk, sizeof chunk));
    }};
    const auto began = std::chrono::steady_clock::now();
    const bool taken = transport::detail::hand_over(request, state, options, [&] { return how == "aborted"; });
    const auto time = std::chrono::steady_clock::now() - began;
    over = true;
    reader.join();
    INFO(how);
    CHECK_FALSE(taken);
    if (how == "slowly") CHECK(time > options.exchange_deadline / 2);
    CHECK(time < options.exchange_deadline * 5);
  }
}

TEST_CASE("the word that a process is left out counts where it comes from another part of the job, in that life or a later one, for an epoch that is new") {
  using transport::detail::Survivors;
  const auto word = [](Survivors& survivors, std::uint64_t secret, std::uint64_t from, std::uint64_t life, std::uint64_t epoch = 9) {
    transport::detail::FrameWriter fields{transport::detail::FrameKind::left_out};
    survivors.hear(transport::detail::FrameReader{fields.number(secret).number(from).number(life).number(epoch).fields()});
    return survivors.told();
  };
  Survivors survivors{1, 42, std::vector<transport::detail::RegroupAddress>(3)};
  survivors.settle({false, true, true});
  CHECK_FALSE(word(survivors, 42, 0, 0));  // it is not of the job any more
  CHECK_FALSE(word(survivors, 41, 2, 0));
  CHECK_FALSE(word(survivors, 42, 3, 0));
  CHECK_FALSE(word(survivors, 42, 2, 0, 0));  // of the epoch that this process is in
  auto taken_in_elsewhere = survivors;
  CHECK(word(taken_in_elsewhere, 42, 0, 1));
  survivors.admit(0, {}, 1);
  CHECK_FALSE(word(survivors, 42, 0, 0));
  CHECK(word(survivors, 42, 0, 1));
}

// A socket whose queue is full answers as an unreachable machine does: not at all.
TEST_CASE("processes that cannot be reached are asked all at once") {
  std::vector<FileDescriptor> sockets;
  std::vector<transport::detail::RegroupAddress> addresses(9);
  for (std::size_t r = 1; r < addresses.size(); ++r) {
    const auto& full = sockets.emplace_back(transport::detail::listen_on(0));
    REQUIRE(::listen(full.get(), 0) == 0);
    addresses[r] = {"127.0.0.1", transport::detail::port_of(full.get())};
    for (int i = 0; i < 3; ++i) {
      std::string error;
      sockets.push_back(transport::detail::connect_to("127.0.0.1", addresses[r].port, std::chrono::milliseconds{20}, error, {}));
    }
  }
  addresses[3] = {"127.0.0.1", static_cast<std::uint16_t>(free_port())};  // nobody listens there
  transport::detail::Survivors survivors{0, 42, addresses};
  std::vector<bool> here(addresses.size());
  here[0] = true;
  const auto began = std::chrono::steady_clock::now();
  survivors.strike(here, false, [] {});
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::milliseconds{1500});  // one after the other: 3.5 s
  for (std::size_t r = 1; r < addresses.size(); ++r) CHECK(survivors.gone(r) == (r == 3));
}

TEST_CASE("a process whose majority died on other machines ends, and one whose other half died there goes on") {
  using transport::detail::Survivors;
  const auto closed = static_cast<std::uint16_t>(free_port());
  for (const std::size_t processes : {2, 3}) {
    std::vector<transport::detail::RegroupAddress> addresses(processes, {"127.0.0.2", closed});
    addresses[0] = {"127.0.0.1", closed};
    Survivors survivors{0, 42, addresses};
    std::vector<bool> here(processes);
    here[0] = true;
    survivors.strike(here, false, [] {});
    for (std::size_t r = 1; r < processes; ++r) CHECK(survivors.gone(r));
    CHECK(survivors.may_go_on(here) == (processes == 2));
    if (processes == 2) CHECK_NOTHROW(survivors.part_from_missing(here, [] {}));
    else CHECK_THROWS_WITH(survivors.part_from_missing(here, [] {}), Catch::Contains("1 of the 3 members of epoch 0, which is no majority, and the others, which are dead, may have gone on before. Start it again"));
  }
}

TEST_CASE("a part of a job whose arbiter cannot be asked ends, and says how to go on") {
  using transport::detail::Survivors;
  const auto closed = static_cast<std::uint16_t>(free_port());
  Survivors survivors{1, 42, std::vector<transport::detail::RegroupAddress>(2, {"127.0.0.1", closed})};
  survivors.ask([](const transport::detail::Claim&, const std::function<void()>&) -> transport::detail::Claim { throw CommunicationError{"the folder is away", -1}; });
  survivors.lose(0);
  CHECK_THROWS_WITH(survivors.part_from_missing({false, true}, [] {}),
                    Catch::Contains("process 1 (pid ") && Catch::Contains("ends: this part of the job cannot take epoch 1: the folder is away. Start it again with the same command and RANK"));
}

TEST_CASE("the last process of a machine goes on, though whoever decided to leave one out died before all had entered that epoch") {
  using transport::detail::Survivors;
  const auto closed = static_cast<std::uint16_t>(free_port());
  Survivors survivors{2, 42, std::vector<transport::detail::RegroupAddress>(3, {"127.0.0.1", closed})};
  survivors.settle({false, true, true});  // process 1 has decided so, and only it has seen that process 0 is dead
  survivors.lose(1);
  CHECK_NOTHROW(survivors.part_from_missing({false, false, true}, [] {}));
}

TEST_CASE("half of a job goes on where the other half is dead on another machine, also where one of these was left out before") {
  using transport::detail::Survivors;
  const bool alive = GENERATE(false, true);
  const auto closed = static_cast<std::uint16_t>(free_port());
  const auto listener = transport::detail::listen_on(0);
  std::vector<transport::detail::RegroupAddress> addresses(4, {"127.0.0.2", closed});
  addresses[2] = addresses[3] = {"127.0.0.1", closed};
  if (alive) addresses[0].port = static_cast<std::uint16_t>(transport::detail::port_of(listener.get()));
  Survivors survivors{2, 42, addresses};
  survivors.settle({false, true, true, true});  // without process 0, in an epoch that is not confirmed
  survivors.lose(1);
  const std::vector<bool> here{false, false, true, true};
  survivors.strike(here, false, [] {});
  CHECK(survivors.may_go_on(here) != alive);
  CHECK_FALSE(survivors.found_lower());  // process 0 does not belong to this part any more
}

TEST_CASE("of two processes on one machine the other one goes on when one is stopped, and the stopped one is told") {
  for (const int victim : {0, 1}) {
    const auto results = run_with_stopped(2, victim);
    INFO(describe(results));
    CHECK(results[static_cast<std::size_t>(victim)].exit_code == 1);
    CHECK(results[static_cast<std::size_t>(victim)].text.find("the others go on without it. Start it again with the same command and RANK") != std::string::npos);
    CHECK(results[static_cast<std::size_t>(1 - victim)].text.ends_with("0 of 1"));
  }
}

}  // namespace test_elastic_job
