// SPDX-License-Identifier: Apache-2.0
// How inputs drive steps.
#include <catch2/catch.hpp>

#include <list>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../support/told.hpp"
#include "deployments.hpp"

namespace test_input {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;

namespace {

Array<float> number(float value) { return {{}, {value}}; }
const auto total = [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); };

}  // namespace

TEST_CASE("any range of arrays is an input, and one that can be read again is left as it is") {
  const std::vector<Array<float>> numbers{number(1), number(2), number(3)};
  Replicator repl{on_devices(2, 2)};
  auto train = repl.replicate([&](const InputContext&) { return numbers; }, total);
  std::vector<float> found;
  for (auto [sum] : train.steps(100)) found.push_back(sum[0].item());
  CHECK(found == std::vector<float>{2, 4, 6});
  CHECK(train.finished());
  CHECK(numbers[2].item() == 3);
}

TEST_CASE("components of tuples come as tensors in order, each of its type") {
  Replicator repl{on_devices(2, 1)};
  auto train = repl.replicate(
      [](const InputContext& ctx) {
        return std::list<std::tuple<Array<float>, Array<std::int32_t>>>(
            2, {Array<float>{{2}, {1, 2}}, Array<std::int32_t>{{}, {ctx.replica()}}});
      },
      [](ReplicaContext&, Tensor<float> x, Tensor<std::int32_t> i) {
        return std::tuple{i, x * cast<float>(i)};
      });
  const auto [i, x] = train.step();
  CHECK(i[1].item() == 1);
  CHECK(x[1][1] == 2);
  CHECK(x[0][1] == 0);
}

TEST_CASE("all replicas stop together when the first input ends") {
  for (const int devices : {1, 2, 3}) {
    Replicator repl{on_devices(3, devices)};
    auto train = repl.replicate(
        [](const InputContext& ctx) {
          return std::vector<Array<float>>(static_cast<std::size_t>(5 - ctx.replica()), number(1));
        },
        total);
    int steps = 0;
    for (auto [sum] : train.steps(100)) steps += sum[0].item() == 3;
    CHECK(steps == 3);
    CHECK(train.steps_done() == 3);
    CHECK(train.finished());
    const auto line = std::source_location::current();
    const auto refused = error_of([&] { train.step(line); });
    CHECK(refused == "step at " + Location{line}.text() + ": the input has ended after 3 steps: ask finished() before another step");
  }
}

TEST_CASE("steps(n) runs n steps and leaves the rest for later") {
  Replicator repl{on_devices(1, 1)};
  auto train = repl.replicate([](const InputContext&) { return std::vector<Array<float>>(5, number(1)); }, total);
  int steps = 0;
  for (auto it : train.steps(2)) (void)it, ++steps;
  CHECK(steps == 2);
  CHECK(train.steps_done() == 2);
  for (auto it : train.steps(0)) (void)it, ++steps;
  CHECK(steps == 2);
  for (auto it : train.steps(100)) (void)it, ++steps;
  CHECK(steps == 5);
}

TEST_CASE("an element of another shape is traced and planned anew, and the variables go on") {
  for (const int devices : {1, 2}) {
    Replicator repl{on_devices(2, devices)};
    int traced = 0;
    auto train = repl.replicate(
        [](const InputContext&) {
          return data::from_generator([](std::int64_t i) -> std::optional<Array<float>> {
            if (i == 6) return std::nullopt;
            Array<float> x{{i % 3 == 2 ? 3 : 4}};
            for (auto& value : x) value = 1;
            return x;
          });
        },
        [&](ReplicaContext& replica, Tensor<float> x) {
          ++traced;
          auto w = replica.variable<float>("w", {}, Initializer::zeros());
          w.assign(w.read() + all_reduce(sum(x), Reduction::sum));
          return x;
        });
    std::vector<std::int64_t> sizes;
    for (auto [x] : train.steps(100)) sizes.push_back(x[1].size());
    CHECK(sizes == std::vector<std::int64_t>{4, 4, 3, 4, 4, 3});
    CHECK(traced == 4);  // two shapes, two replicas: plans are kept
    CHECK(repl.value("w").as<float>()[0] == 2 * (4 + 4 + 3 + 4 + 4 + 3));
  }
}

TEST_CASE("replicas may have elements of different shapes, as long as they contribute equal ones") {
  for (const int devices : {1, 2, 3}) {
    Replicator repl{on_devices(3, devices)};
    auto train = repl.replicate(
        [](const InputContext& ctx) { return std::vector<Array<float>>(2, Array<float>{{1 + ctx.replica()}}); },
        [](ReplicaContext&, Tensor<float> x) { return all_reduce(sum(x + 1.0f), Reduction::sum); });
    const auto [count] = train.step();
    CHECK(count[2].item() == 1 + 2 + 3);
  }
}

TEST_CASE("an error of the input arrives at the step that needs the element, not earlier") {
  for (const int devices : {1, 2}) {
    Replicator repl{on_devices(2, devices)};
    const auto line = std::source_location::current();
    auto train = repl.replicate(
        [](const InputContext& ctx) {
          return data::from_generator([ctx](std::int64_t i) {
            if (i == 2 && ctx.replica() == 1) throw DataError{"photos/7.jpg is truncated"};
            return number(static_cast<float>(i));
          });
        },
        [](ReplicaContext& replica, Tensor<float> x) {
          auto w = replica.variable<float>("w", {}, Initializer::zeros());
          w.assign(w.read() + all_reduce(x + 1.0f, Reduction::sum));
        },
        {}, line);
    train.step();
    train.step();
    CHECK_FALSE(train.finished());
    CHECK_THROWS_AS(train.step(), DataError);
    CHECK(error_of([&] { train.step(); }) ==
          "photos/7.jpg is truncated (element 2 of the input of replica 1, given to replicate at " + Location{line}.text() + ")");
    CHECK(train.steps_done() == 2);
    CHECK(repl.value("w").as<float>()[0] == 2 * (1 + 2));
  }
}

TEST_CASE("an input that fails at its first element fails in replicate; the program's own exceptions keep their type, and stderr says the place") {
  const TemporaryFolder folder;
  Replicator repl{on_devices(1, 1)};
  const auto line = std::source_location::current();
  const auto told = test::told(folder, [&] {
    CHECK_THROWS_AS(repl.replicate(
                        [](const InputContext&) {
                          return data::from_generator([]() -> Array<float> { throw std::out_of_range{"no"}; });
                        },
                        total, {}, line),
                    std::out_of_range);
  });
  CHECK(told == "replicator: the program threw an exception (element 0 of the input of replica 0, given to replicate at " + Location{line}.text() + "): no\n");
}

TEST_CASE("a step_fn's own exception keeps its type, and stderr says the replica; likewise that of a host_callback") {
  const TemporaryFolder folder;
  Replicator repl{on_devices(2, 1)};
  const auto line = std::source_location::current();
  auto told = test::told(folder, [&] {
    CHECK_THROWS_AS(repl.replicate([](ReplicaContext& replica) { if (replica.id() == 1) throw std::out_of_range{"no"}; }, {}, line), std::out_of_range);
  });
  CHECK(told == "replicator: the program threw an exception (in the step_fn given to replicate at " + Location{line}.text() + ", traced for replica 1): no\n");
  told = test::told(folder, [&] {
    auto step = repl.replicate([&](ReplicaContext& replica) { host_callback(
                                                                  full<float>(replica, {}, 1), [](const Observation&) { throw std::out_of_range{"no"}; }, line); });
    CHECK_THROWS_AS(step.step(), std::out_of_range);
  });
  CHECK(told == "replicator: the program threw an exception (in host_callback at " + Location{line}.text() + ", all replicas, step 0): no\n");
}

TEST_CASE("an exception of the program that is derived from DataError keeps its type") {
  struct Torn : DataError {
    using DataError::DataError;
  };
  Replicator repl{on_devices(1, 1)};
  const auto torn = [](const InputContext&) { return data::from_generator([]() -> Array<float> { throw Torn{"page 7"}; }); };
  const TemporaryFolder folder;
  CHECK_THAT(test::told(folder, [&] { CHECK_THROWS_AS(repl.replicate(torn, total), Torn); }), Catch::Contains("of the input of replica 0") && Catch::EndsWith("): page 7\n"));
}

TEST_CASE("an empty input names its replica and the line of replicate") {
  Replicator repl{on_devices(3, 2)};
  const auto input_fn = [](const InputContext& ctx) { return std::vector<Array<float>>(ctx.replica() == 2 ? 0 : 4, number(1)); };
  std::source_location line;
  const auto message = error_of([&] { line = std::source_location::current(), repl.replicate(input_fn, total); });
  CHECK(message == "the input of replica 2, given to replicate at " + Location{line}.text() +
                       ", is empty: input_fn must give every replica at least one element. Check that its source has items, "
                       "and with shard() and epochs() at least as many as there are replicas");
}

TEST_CASE("an error of input_fn names its replica and the line of replicate") {
  Replicator repl{on_devices(3, 1)};
  const auto input_fn = [](const InputContext& ctx) { return std::vector<Array<float>>(ctx.replica_batch(7), number(1)); };
  std::source_location line;
  const auto message = error_of([&] { line = std::source_location::current(), repl.replicate(input_fn, total); });
  CHECK(message ==
        "a batch of 7 over all replicas was asked for, but 3 replicas do not divide it: use a multiple of 3 (in the input_fn given to "
        "replicate at " +
            Location{line}.text() + ", called for replica 0)");
}

TEST_CASE("an error of an input_fn that serves a whole process says so") {
  Replicator repl{on_devices(3, 1)};
  const auto input_fn = [](const HostContext&) -> std::vector<Array<float>> { throw DataError{"photos/: no such folder"}; };
  std::source_location line;
  const auto message = error_of([&] { line = std::source_location::current(), repl.replicate(input_fn, total); });
  CHECK(message == "photos/: no such folder (in the input_fn given to replicate at " + Location{line}.text() + ", called for all replicas of this process)");
}

TEST_CASE("every error in step_fn names the replica, and one without a line that of replicate") {
  Replicator repl{on_devices(2, 1)};
  const auto numbers = [](const InputContext&) { return std::vector<Array<float>>(2, number(1)); };
  std::source_location line;
  const auto of = [&](auto step_fn) {
    return error_of([&] { line = std::source_location::current(), repl.replicate(numbers, step_fn); });
  };
  const auto no_axis = of([](ReplicaContext&, Tensor<float> x) { return x * static_cast<float>(x.shape()[1]); });
  CHECK(no_axis == "asked for axis 1 of the shape [], which has 0: axes count from 0, or from -1 at the end (in the step_fn given to replicate at " +
                       Location{line}.text() + ", traced for replica 0)");
  std::source_location there;
  const auto located = of([&](ReplicaContext&, Tensor<float> x) {
    there = std::source_location::current();
    return sum(x, 1);
  });
  CHECK(located == "replica 0: sum at test_input.cpp:" + std::to_string(there.line() + 1) + ": the axis 1 does not exist in the shape []");
}

TEST_CASE("a batch that the replicas do not divide, and a replica that does not exist, are refused") {
  Replicator repl{on_devices(3, 1)};
  CHECK(repl.input_context(0).replica_batch(6) == 2);
  CHECK(error_of([&] { repl.input_context(3); }) ==
        "the input context of replica 3 was asked for, but there are 3 replicas: name one from 0 to 2");
  const auto refused = [&](std::int64_t batch) {
    return error_of([&] { repl.input_context(0).replica_batch(batch); });
  };
  CHECK(refused(7) ==
        "a batch of 7 over all replicas was asked for, but 3 replicas do not divide it: use a multiple of 3");
  CHECK(refused(0) ==
        "a batch of 0 over all replicas was asked for: it must be positive, a multiple of the 3 replicas");
  CHECK(refused(-3) ==
        "a batch of -3 over all replicas was asked for: it must be positive, a multiple of the 3 replicas");
}

TEST_CASE("input functions know their replica, the number of replicas and the seed") {
  Replicator repl{on_devices(2, 2, 99)};
  auto train = repl.replicate(
      [](const InputContext& ctx) {
        return std::vector<Array<float>>(
            1, Array<float>{{3}, {1.0f * ctx.replica(), 1.0f * ctx.replicas(), static_cast<float>(ctx.seed())}});
      },
      [](ReplicaContext&, Tensor<float> x) { return x; });
  const auto [x] = train.step();
  CHECK(x[1][0] == 1);
  CHECK(x[1][1] == 2);
  CHECK(x[1][2] == 99);
}

}  // namespace test_input
