// SPDX-License-Identifier: Apache-2.0
// The program warns about a slow input, and names it.
#include <catch2/catch.hpp>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <replicator/engine/input_watch.hpp>
#include <replicator/replicator.hpp>

#include "../support/told.hpp"

namespace test_input_watch {

using namespace replicator;
using namespace replicator::detail;
using namespace std::chrono_literals;

TEST_CASE("a read that takes long is told once, with replica and element, and what it gives is given on") {
  std::mutex mutex;
  std::vector<std::string> told;
  InputWatch watch{20ms, [&](const std::string& line) {
                     const std::lock_guard lock{mutex};
                     told.push_back(line);
                   }};
  CHECK(watch.during(3, 7, [&] {
    for (int i = 0; i < 1000; ++i) {
      std::this_thread::sleep_for(10ms);
      const std::lock_guard lock{mutex};
      if (!told.empty()) break;
    }
    std::this_thread::sleep_for(100ms);
    return 42;
  }) == 42);
  const std::lock_guard lock{mutex};
  REQUIRE(told.size() == 1);
  CHECK(told[0] == "replicator: the input of replica 3 has not given element 7 for more than 20 ms; the step waits for it\n");
}

TEST_CASE("nothing is told of reads in time, of reads that end by an exception, or where nobody wants to know") {
  int told = 0;
  {
    InputWatch watch{300ms, [&](const std::string&) { ++told; }};
    for (std::uint64_t i = 0; i < 100; ++i) watch.during(0, i, [] { std::this_thread::sleep_for(5ms); });
    CHECK_THROWS(watch.during(0, 100, []() -> int { throw 1; }));
    std::this_thread::sleep_for(700ms);
  }
  InputWatch never{0ms, [&](const std::string&) { ++told; }};
  never.during(0, 0, [] { std::this_thread::sleep_for(20ms); });
  CHECK(told == 0);
}

TEST_CASE("a step tells of the replica whose input it waits for") {
  Deployment deployment{.replicas = 2};
  deployment.late = 30ms;
  Replicator repl{deployment};
  auto step = repl.replicate(
      [](const InputContext& ctx) {
        return data::from_generator([replica = ctx.replica()](std::int64_t position) {
          if (replica == 1 && position == 2) std::this_thread::sleep_for(300ms);
          return Array<float>{{2}, {1, 2}};
        });
      },
      [](ReplicaContext&, Tensor<float> x) { return sum(x); });
  const TemporaryFolder folder;
  const auto told = test::told(folder, [&] {
    for (int i = 0; i < 4; ++i) (void)step.step();
  });
  CHECK(told == "replicator: the input of replica 1 has not given element 2 for more than 30 ms; the step waits for it\n");
}

TEST_CASE("a replicated step tells of an input_fn that takes long") {
  Deployment deployment;
  deployment.late = 30ms;
  Replicator repl{deployment};
  const TemporaryFolder folder;
  const auto told = test::told(folder, [&] {
    (void)repl.replicate(
        [](const InputContext&) {
          std::this_thread::sleep_for(300ms);
          return data::from_generator([](std::int64_t) { return Array<float>{{2}, {1, 2}}; });
        },
        [](ReplicaContext&, Tensor<float> x) { return sum(x); });
  });
  CHECK(told == "replicator: input_fn has not returned for more than 30 ms; the step waits for it\n");
}

}  // namespace test_input_watch
