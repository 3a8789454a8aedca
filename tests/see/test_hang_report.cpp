// SPDX-License-Identifier: Apache-2.0
// Hang reports: stopped processes, devices that never arrive, signals, and no report while all is well.
#include <catch2/catch.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/replicate/report_on_signal.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../replicate/deployments.hpp"
#include "../support/programs.hpp"

namespace test_hang_report {

using namespace replicator;
using namespace replicator::detail;
using namespace std::chrono_literals;

namespace {

Deployment with_deadline(int replicas, int devices, std::chrono::seconds deadline) {
  auto deployment = test::on_devices(replicas, devices);
  deployment.deadline = deadline;
  return deployment;
}

// Ten steps that sum a one over all replicas; before(replica, element) is called where the element is read.
template <class Before>
std::string sum_ten_times(Replicator& repl, Before before) {
  auto train = repl.replicate(
      [before](const InputContext& ctx) {
        return data::from_generator([before, replica = ctx.replica()](std::int64_t i) {
          before(replica, i);
          return Array<float>{{}, {1}};
        });
      },
      [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum, {.label = "loss"}); });
  for (auto step : train.steps(10)) (void)step;
  return "done";
}

// A step whose replica 1 is held up for 3 s by a function of the host.
constexpr int hold_up_line = 64;
std::string hold_up(Replicator& repl) {
  auto train = repl.replicate(
      [](const InputContext& context) { return context.same_on_all_replicas(), data::from_generator([](std::int64_t) { return Array<float>{{}, {1}}; }); },
      [](ReplicaContext& replica, Tensor<float> x) {
        static_assert(hold_up_line == __LINE__ + 1);
        if (replica.id() == 1) x = host_callback(x, [](const auto&...) { std::this_thread::sleep_for(3s); });
        return all_reduce(x, Reduction::sum, {.label = "loss"});
      });
  train.step();
  return "done";
}

std::string content(const std::string& path) {
  std::stringstream text;
  text << std::ifstream{path}.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("when a process is stopped, the survivors report the collective and whom it waits for") {
  const auto results = test::run_as_job(3, [](int) {
    Replicator repl{with_deadline(3, 1, 2s)};
    return sum_ten_times(repl, [](int replica, std::int64_t i) {
      if (replica == 1 && i == 5) ::raise(SIGSTOP);
    });
  });
  INFO(test::describe(results));
  for (const int survivor : {0, 2}) {
    const auto& text = results[static_cast<std::size_t>(survivor)].text;
    CHECK_THAT(text, Catch::Contains("replicator: where process " + std::to_string(survivor) + " (pid "));
    CHECK_THAT(text, Catch::Contains("cpu:0, replica " + std::to_string(survivor) + ": step 4, begun "));
    CHECK_THAT(text, Catch::Contains("it waits for all_reduce \"loss\" at test_hang_report.cpp:"));
    CHECK_THAT(text, Catch::Contains("that is for replica 1 on rank 1 of process 1 (pid "));
    CHECK_THAT(text, Catch::Contains("in step 3: all_reduce \"loss\" at test_hang_report.cpp:"));
    CHECK_THAT(text, Catch::Contains(", under way\n"));
  }
}

TEST_CASE("a device that is held up by a function of the host is reported with its line") {
  const auto file =
      (std::filesystem::temp_directory_path() / ("replicator_hang_" + std::to_string(::getpid()) + ".txt")).string();
  const auto results = test::run_processes(1, [&](int) {
    auto deployment = with_deadline(2, 2, 1s);
    deployment.see.hang_report = file;
    Replicator repl{deployment};
    return hold_up(repl);
  });
  INFO(test::describe(results));
  CHECK(results[0].exit_code == 1);
  for (const auto& text : {results[0].text, content(file)}) {
    CHECK_THAT(text, Catch::Contains("cpu:0, replica 0: step 0, begun ") && Catch::Contains("it waits for all_reduce \"loss\" at "));
    CHECK_THAT(text, Catch::Contains("cpu:1, replica 1: step 0, begun ") && Catch::Contains("it is at observe#"));
    CHECK_THAT(text, Catch::Contains(" at test_hang_report.cpp:" + std::to_string(hold_up_line) + " for replica 1\n"));
    CHECK_THAT(text, Catch::Contains("that is for replica 1 on rank 1 of this process\n"));
  }
  std::remove(file.c_str());
}

TEST_CASE("a process that is held up itself reports where, when the others give it up") {
  const auto results = test::run_as_job(2, [](int) {
    Replicator repl{with_deadline(2, 1, 1s)};
    return hold_up(repl);
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::Contains("that is for replica 1 on rank 1 of process 1 (pid "));
  CHECK_THAT(results[1].text, Catch::Contains("where process 1 (pid ") && Catch::Contains("it is at observe#"));
}

TEST_CASE("a process whose input takes longer than the deadline says which element it waits for") {
  for (const std::int64_t slow : {0, 5}) {
    const auto results = test::run_as_job(2, [slow](int) {
      Replicator repl{with_deadline(2, 1, 2s)};
      return sum_ten_times(repl, [slow](int replica, std::int64_t i) {
        if (replica == 1 && i == slow) std::this_thread::sleep_for(5s);
      });
    });
    INFO(test::describe(results));
    const auto element = "element " + std::to_string(slow) + " of the input of replica 1";
    CHECK(results[0].exit_code == 1);
    CHECK(results[1].exit_code == 1);
    CHECK_THAT(results[1].text, Catch::Contains("  the program's input: since ") && Catch::Contains(" the step waits for " + element + "\n"));
    CHECK_THAT(results[1].text, Catch::Contains(" waited for " + element + " meanwhile"));
    CHECK_THAT(results[1].text, !Catch::Contains("under way"));
    CHECK_THAT(results[0].text, !Catch::Contains("the program's input"));
  }
}

TEST_CASE("a signal while the input is awaited is answered with the element") {
  const auto results = test::run_processes(1, [](int) {
    report_on_signal(SIGUSR1);
    Replicator repl{with_deadline(2, 2, 60s)};
    return sum_ten_times(repl, [](int replica, std::int64_t i) {
      if (replica != 1 || i != 5) return;
      ::raise(SIGUSR1);
      std::this_thread::sleep_for(3s);
    });
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::Contains(" the step waits for element 5 of the input of replica 1\n") && Catch::EndsWith("done"));
}

TEST_CASE("a signal while a device waits is answered by where it stands, and the program goes on") {
  const auto results = test::run_as_job(2, [](int rank) {
    report_on_signal(SIGUSR1);
    Replicator repl{with_deadline(2, 1, 60s)};
    std::thread asks{[rank] {
      std::this_thread::sleep_for(2s);
      if (rank == 0) ::kill(::getpid(), SIGUSR1);
    }};
    const auto text = sum_ten_times(repl, [](int replica, std::int64_t i) {
      if (replica == 1 && i == 5) std::this_thread::sleep_for(4s);
    });
    asks.join();
    return text;
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::Contains("stands (a signal asks)") && Catch::EndsWith("done"));
  CHECK_THAT(results[0].text, Catch::Contains("that is for replica 1 on rank 1 of process 1 (pid "));
  CHECK(results[1].text == "done");
}

TEST_CASE("a wait that is long but not in vain is told once, with who is missing, for collectives and for handoffs") {
  const auto told = [](Deployment deployment, auto step) {
    deployment.late = 500ms;
    const auto results = test::run_processes(1, [&](int) {
      Replicator repl{deployment};
      return step(repl);
    });
    const auto text = results[0].text;
    CHECK_THAT(text, Catch::StartsWith("replicator: ") && Catch::EndsWith("done"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 2);
    CHECK_THAT(text, Catch::Contains(" still waits:\n  cpu:0, "));
    return text;
  };
  CHECK_THAT(told(with_deadline(2, 2, 60s), hold_up), Catch::Contains("it waits for all_reduce \"loss\" at test_hang_report.cpp:") &&
                                                          Catch::Contains("that is for replica 1 on rank 1 of this process\n"));
  auto halves = with_deadline(1, 2, 60s);
  halves.logical_devices = 2;
  const auto handoff = told(halves, [](Replicator& repl) {
    auto train = repl.replicate([](const InputContext&) { return data::from_generator([](std::int64_t) { return Array<float>{{}, {1}}; }); },
                                [](ReplicaContext& replica, Tensor<float> x) {
                                  {
                                    const auto there = replica.logical_device(1);
                                    x = host_callback(x, [](const auto&...) { std::this_thread::sleep_for(2s); });
                                  }
                                  return x + 1.0f;
                                });
    train.step();
    return std::string{"done"};
  });
  CHECK_THAT(handoff, Catch::Contains(", from device 1 of its replicas\n"));
}

TEST_CASE("signals at any moment change nothing, and the report of an idle device says so") {
  const auto results = test::run_processes(1, [](int) {
    report_on_signal(SIGUSR1);
    report_on_signal(SIGUSR2);
    ::raise(SIGUSR1);  // nobody is there yet
    Replicator repl{with_deadline(2, 2, 60s)};
    std::this_thread::sleep_for(100ms);
    ::raise(SIGUSR1);
    std::this_thread::sleep_for(100ms);
    const auto text = sum_ten_times(repl, [](int, std::int64_t) {});
    ::raise(SIGUSR2);
    std::this_thread::sleep_for(300ms);
    return text;
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::Contains("cpu:1, replica 1: it has begun no step\n"));
  CHECK_THAT(results[0].text, Catch::Contains("cpu:1, replica 1: step 9, begun ") && Catch::Contains("done; the device is between steps"));
  CHECK_THAT(results[0].text, Catch::EndsWith("done"));
}

TEST_CASE("nothing is reported when all is well, or when an error comes at once") {
  const auto results = test::run_as_job(2, [](int) {
    report_on_signal(SIGUSR1);
    Replicator repl{with_deadline(2, 1, 60s)};
    return sum_ten_times(repl, [](int replica, std::int64_t i) {
      if (replica == 1 && i == 5) std::this_thread::sleep_for(1500ms);
    });
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "done");
  const auto failed = test::run_as_job(2, [](int) {
    Replicator repl{with_deadline(2, 1, 60s)};
    return sum_ten_times(repl, [](int replica, std::int64_t i) {
      if (replica == 1 && i == 5) throw DataError{"photos/7.jpg is truncated"};
    });
  });
  INFO(test::describe(failed));
  for (const auto& result : failed) CHECK_THAT(result.text, Catch::StartsWith("error: "));
}

TEST_CASE("a signal that no program may handle is refused") {
  CHECK_THROWS_WITH(report_on_signal(SIGKILL), Catch::Contains("choose a signal that a program may handle, as SIGUSR1"));
}

}  // namespace test_hang_report
