// SPDX-License-Identifier: Apache-2.0
// A warning for inputs that are the same on all replicas, and steps that take no input.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <sstream>
#include <string>
#include <tuple>

#include <replicator/data/batch.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../support/told.hpp"
#include "deployments.hpp"

namespace test_equal_inputs {

using namespace replicator;
using test::on_devices;

namespace {

struct Rows {
  std::int64_t size() const { return 4; }
  Array<float> operator[](std::int64_t i) const { return Array<float>{{1}, {static_cast<float>(i)}}; }
};
Array<float> number(std::int64_t position) { return Array<float>{{}, {static_cast<float>(position)}}; }

// What replicate() with this input function says on stderr, for so many replicas. `where`: its line.
template <class InputFn>
std::string said(InputFn input_fn, int replicas, std::source_location* where = nullptr) {
  const TemporaryFolder folder;
  return test::told(folder, [&] {
    Replicator repl{on_devices(replicas, 1)};
    const auto line = std::source_location::current();
    repl.replicate(
        input_fn, [](ReplicaContext&, Tensor<float> x) { return x; }, {}, line);
    if (where) *where = line;
  });
}

}  // namespace

TEST_CASE("an input that does not ask for its replica is told of, with the line of replicate()") {
  std::source_location where;
  const auto text = said([](const InputContext&) { return data::from_generator(number); }, 3, &where);
  CHECK(text == "replicator: all 3 replicas of replicate() at " + Location{where}.text() +
                    " read the same elements: its input_fn asks neither for its replica nor for its shard. "
                    "Give each its part by \"| rp::data::shard(context)\", or call context.same_on_all_replicas() if this is meant\n");
  CHECK_THAT(said([](const InputContext& context) { return data::TableSource{Rows{}} | data::shuffle() | data::batch(context.replica_batch(3)); }, 3),
             Catch::Contains("all 3 replicas"));
}

TEST_CASE("a line that calls replicate() in every epoch is told of once, and another line again") {
  const TemporaryFolder folder;
  const auto text = test::told(folder, [&] {
    Replicator repl{on_devices(2, 1)};
    const auto validate = [&] { repl.replicate([](const InputContext&) { return data::from_generator(number); }, [](ReplicaContext&, Tensor<float> x) { return x; }, {.checkpointed = false}); };
    for (int epoch = 0; epoch < 3; ++epoch) validate();
    // The first call of a line may be right, and the second one wrong.
    const auto build = [&](auto input) { repl.replicate(input, [](ReplicaContext&, Tensor<float> x) { return x; }, {.checkpointed = false}); };
    build([](const InputContext& context) { return data::TableSource{Rows{}} | data::shard(context) | data::batch(1); });
    build([](const InputContext&) { return data::from_generator(number); });
  });
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

TEST_CASE("no warning for shards, for a replica's id, for inputs that are meant to be equal, and for one replica") {
  CHECK(said([](const InputContext& context) { return data::TableSource{Rows{}} | data::shard(context) | data::batch(1); }, 2).empty());
  CHECK(said([](const InputContext& context) { return data::from_generator([id = context.replica()](std::int64_t) { return number(id); }); }, 2).empty());
  // A copy of the context may be asked later.
  CHECK(said([](const InputContext& context) { return data::from_generator([context](std::int64_t) { return number(context.replica()); }); }, 2).empty());
  CHECK(said(
            [](const InputContext& context) {
              context.same_on_all_replicas();
              return data::from_generator(number);
            },
            2)
            .empty());
  CHECK(said([](const HostContext&) { return data::from_generator(number); }, 2).empty());  // dealt in turn
  CHECK(said([](const InputContext&) { return data::from_generator(number); }, 1).empty());
}

TEST_CASE("a step without input takes the replica alone, and never ends") {
  const TemporaryFolder folder;
  const auto text = test::told(folder, [] {
    Replicator repl{on_devices(3, 2)};
    auto train = repl.replicate([](ReplicaContext& replica) {
      const auto count = replica.variable<float>("count", {}, Initializer::zeros());
      count.assign(count.read() + 1.0f);
      return count.read();
    });
    for (auto [count] : train.steps(5)) CHECK(count[2][0] == static_cast<float>(train.steps_done()));
    CHECK_FALSE(train.finished());
    auto again = repl.replicate([](ReplicaContext& replica) { return replica.variable<float>("count", {}, Initializer::zeros()).read(); },
                                {.checkpointed = false});
    CHECK(std::get<0>(again.step())[0][0] == 5);
  });
  CHECK(text.empty());
}

TEST_CASE("values of all replicas are printed and summed") {
  const auto text = [](const auto& values) {
    std::ostringstream out;
    out << values;
    return out.str();
  };
  using Numbers = PerReplica<Array<float>>;
  CHECK(text(Numbers{{{{}, {0.5f}}, {{}, {0.25f}}}, 0, 2}) == "[0.5, 0.25]");
  CHECK(text(Numbers{{{{2}, {1, 2}}, {{2}, {3, 4}}}, 2, 4}) == "replicas 2 to 3: [[1, 2], [3, 4]]");
  CHECK(text(Numbers{{Array<float>{{3, 3}}}, 0, 1}) == "[[0, 0, 0, 0, 0, 0, 0, 0, ...]]");
  CHECK(text(std::tuple{Numbers{{{{}, {0.5f}}}, 0, 1}, Numbers{{{{}, {2}}}, 0, 1}}) == "[0.5], [2]");
  CHECK(text(PerReplica<Array<std::uint8_t>>{{{{}, {65}}}, 0, 1}) == "[65]");
  CHECK(text(Array<float>{{2, 1}, {1, 2}}) == "[1, 2]");
  CHECK(text(Array<float>{{}, {0.5f}}) == "0.5");
  CHECK(text(Array<float>{}) == "[]");
  CHECK(text(AnyArray{}) == "[]");
  CHECK(text(Array<float>{{}, {0.5f}}.any()) == "0.5");
  CHECK(text(Array<std::uint8_t>{{2}, {65, 66}}.any()) == "[65, 66]");
  CHECK(text(Array<std::int64_t>{{3, 3}}.any()) == "[0, 0, 0, 0, 0, 0, 0, 0, ...]");
  CHECK(sum(Numbers{{{{2}, {1, 2}}, {{2}, {3, 4}}}, 0, 2}) == 10);
  const auto count = sum(PerReplica<Array<bool>>{{{{2}, {true, false}}, {{2}, {true, true}}}, 0, 2});
  CHECK(std::is_same_v<decltype(count), const std::int64_t>);
  CHECK(count == 3);
  CHECK_THROWS_AS(sum(Numbers{{{{}, {0.5f}}}, 1, 2}), BuildError);
}

}  // namespace test_equal_inputs
