// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <replicator/async/resolve_async.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/observe.hpp>

#include "graphs.hpp"

namespace test_async {

using namespace replicator;
using namespace replicator::detail;
using test::traced;

namespace {

using Names = std::vector<std::string>;

template <class Optimizer>
auto three_variables(const Optimizer& optimizer) {
  return [optimizer](ReplicaContext& replica, Tensor<float> x) {
    const auto a = replica.variable<float>("a", {10}, Initializer::zeros()), b = replica.variable<float>("b", {30}, Initializer::zeros()),
               c = replica.variable<float>("c", {20}, Initializer::zeros());
    optimizer.minimize(replica, (sum(a.read()) + sum(b.read()) + sum(c.read())) * sum(x));
    replica.graph().results().push_back(sum(x).any().value());
  };
}
template <class T>
int count(const Graph& graph) {
  int found = 0;
  for (const auto& node : graph.nodes()) found += node.get<T>() != nullptr;
  return found;
}

}  // namespace

TEST_CASE("a step is cut at the gradients: what comes before is each replica's, what comes after is each shard's") {
  const auto graphs = traced(3, three_variables(nn::sgd({.learning_rate = 1, .momentum = 0.9})));
  const auto resolution = resolve_async(graphs, 3);
  CHECK(resolution.results == 1);
  CHECK(resolution.whole.collectives.size() == 3);
  REQUIRE(resolution.steps.size() == 3);
  for (int r = 0; r < 3; ++r) {
    const auto& step = resolution.steps[static_cast<std::size_t>(r)];
    CHECK(step.replica() == r);
    CHECK(count<Assign>(step) == 0);
    CHECK(step.results().size() == 4);
    CHECK(step.type(step.results()[0]).shape.elements() == 1);
  }
  REQUIRE(resolution.shards.size() == 3);
  CHECK(resolution.shards[0].variables == Names{"b", "b/momentum"});
  CHECK(resolution.shards[0].bytes == 240);
  CHECK(resolution.shards[1].variables == Names{"c", "c/momentum"});
  CHECK(resolution.shards[2].variables == Names{"a", "a/momentum"});
  for (const auto& shard : resolution.shards) {
    CHECK(count<Assign>(shard.update) == 2);
    CHECK(count<Input>(shard.update) == 1);
    CHECK(count<Placeholder>(shard.update) == 0);
  }
}

TEST_CASE("fewer shards take several sets of variables, and are as equal as these allow") {
  const auto resolution = resolve_async(traced(2, three_variables(nn::sgd({.learning_rate = 1}))), 2);
  REQUIRE(resolution.shards.size() == 2);
  CHECK(resolution.shards[0].variables == Names{"b"});
  CHECK(resolution.shards[1].variables == Names{"a", "c"});
}

TEST_CASE("variables whose updates read each other are in one shard") {
  const auto resolution = resolve_async(traced(2, three_variables(nn::adam({}))), 4);
  REQUIRE(resolution.shards.size() == 1);
  CHECK(resolution.shards[0].variables.size() == 10);
}

TEST_CASE("what looks at a reduced gradient does so in the replica's step only") {
  const auto resolution = resolve_async(traced(2,
                                               [](ReplicaContext& replica, Tensor<float> x) {
                                                 const auto w = replica.variable<float>("w", {}, Initializer::zeros());
                                                 const auto gradients = nn::variable_gradients(w.read() * sum(x), std::vector{w});
                                                 auto means = nn::mean_over_replicas(std::vector{w}, gradients);
                                                 means[0] = print(means[0], "mean");
                                                 nn::sgd({}).apply_gradients(replica, std::vector{w}, means);
                                               }),
                                        1);
  const auto prints = [](const Graph& graph) {
    int found = 0;
    for (const auto& node : graph.nodes()) found += node.get<Compute>() && node.get<Compute>()->operation.effect();
    return found;
  };
  CHECK(prints(resolution.steps[1]) == 1);
  CHECK(prints(resolution.shards[0].update) == 0);
}

}  // namespace test_async
