// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <replicator/async/resolve_async.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/low_rank.hpp>
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
// With a group for each replica: the error, or "nothing".
template <class Step>
std::string refusal(Step step) {
  const auto graphs = traced(3, step);
  return test::error_of([&] { resolve_async(graphs, 3, 3); });
}
Variable<float> weight(ReplicaContext& replica, Initializer initializer = Initializer::zeros()) {
  return replica.variable<float>("w", {}, initializer);
}
Tensor<float> slope_of(const Variable<float>& w, Tensor<float> x) { return gradient(w.read() * sum(x), w.read()); }
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

TEST_CASE("an all_reduce of the user's own is cut at as those of minimize are: both leave the same graph") {
  const auto with_own = [](Reduction reduction) {
    return [=](ReplicaContext& replica, Tensor<float> x) {
      const auto w = weight(replica);
      const auto own = nn::variable_gradients(w.read() * sum(x), std::vector{w});
      const auto all = all_reduce(own[0], reduction, {.label = "w/gradient"});
      nn::sgd({.learning_rate = 1}).apply_gradients(replica, std::vector{w}, std::vector{all});
    };
  };
  const auto with_minimize = [](ReplicaContext& replica, Tensor<float> x) {
    const auto w = weight(replica);
    nn::sgd({.learning_rate = 1}).minimize(replica, w.read() * sum(x));
  };
  CHECK(digest_of(traced(2, with_own(Reduction::mean))[1]) == digest_of(traced(2, with_minimize)[1]));
  for (const auto reduction : {Reduction::sum, Reduction::mean, Reduction::min, Reduction::max}) {
    const auto resolution = resolve_async(traced(2, with_own(reduction)), 1, 2);
    REQUIRE(resolution.shards.size() == 1);
    CHECK(resolution.shards[0].variables == Names{"w"});
    CHECK(count<Placeholder>(resolution.steps[0]) == 1);
    CHECK(count<Assign>(resolution.steps[0]) == 0);
    CHECK(count<Placeholder>(resolution.shards[0].update) == 0);
    const auto last = resolution.steps[0].results().back();
    CHECK((resolution.steps[0].node(last).get<Placeholder>() != nullptr) == (reduction != Reduction::sum));  // a sum is multiplied by 2
  }
}

TEST_CASE("two all_reduces of one update may follow each other, and a replica may keep what is computed from them") {
  const auto resolution = resolve_async(traced(2,
                                               [](ReplicaContext& replica, Tensor<float> x) {
                                                 const auto w = replica.variable<float>("w", {5, 6}, Initializer::zeros());
                                                 nn::wrap_optimizer(nn::sgd({}), nn::low_rank({.rank = 1, .least_saving = 0}))
                                                     .minimize(replica, sum(w.read()) * sum(x));
                                               }),
                                        1, 2);
  REQUIRE(resolution.shards.size() == 1);
  CHECK(resolution.shards[0].variables == Names{"w", "w/directions"});
  CHECK(count<Input>(resolution.shards[0].update) == 2);
  CHECK(count<Assign>(resolution.steps[0]) == 1);  // w/error
}

TEST_CASE("a step may go on with what it has assigned, and return it") {
  CHECK(refusal([](ReplicaContext& replica, Tensor<float> x) {
          const auto w = weight(replica), v = replica.variable<float>("v", {}, Initializer::zeros());
          w.assign(w.read() - all_reduce(slope_of(w, x), Reduction::mean));
          v.assign(v.read() - all_reduce(slope_of(v, x) * w.read(), Reduction::mean));
          replica.graph().results().push_back((w.read() + v.read()).any().value());
        }) == "nothing");
}

TEST_CASE("a collective whose result is for something else than an update is refused with its line and the reason") {
  const auto starts = [](const std::string& kind, const std::source_location& here) {
    return Catch::StartsWith(kind + " at " + test::at_line(here) + " cannot be resolved with --regime async: replicas are at different steps there, and ");
  };
  std::source_location here;
  // Trains with its own all_reduce too.
  const auto beside = [&](auto also) {
    return refusal([&](ReplicaContext& replica, Tensor<float> x) {
      const auto w = weight(replica);
      const auto mean = all_reduce(slope_of(w, x), Reduction::mean, {}, here);
      w.assign(w.read() - mean);
      also(replica, x, mean);
    });
  };
  here = std::source_location::current();
  CHECK(beside([](auto&&...) {}) == "nothing");

  const auto returned = beside([](ReplicaContext& replica, Tensor<float> x, Tensor<float> mean) {
    replica.graph().results().push_back(sum(x).any().value());
    replica.graph().results().push_back((mean * mean).any().value());
  });
  CHECK_THAT(returned, starts("all_reduce", here) && Catch::EndsWith("result 1 of the step is computed from it: return what the replica has computed "
                                                                     "alone, or run with --regime sync"));
  const auto needed = beside([&](ReplicaContext&, Tensor<float>, Tensor<float> mean) { all_reduce(mean, Reduction::sum, {.label = "again"}); });
  CHECK_THAT(needed, starts("all_reduce", here) && Catch::Contains("the replica needs its result before all_reduce \"again\" at "));

  const auto kept = beside([&](ReplicaContext& replica, Tensor<float> x, Tensor<float>) {
    replica.variable<float>("own", {}, Initializer::zeros(), {.kind = VariableKind::replica_local}).assign(all_reduce(sum(x), Reduction::max, {}, here));
  });
  CHECK_THAT(kept, starts("all_reduce", here) && Catch::Contains("no mirrored variable is assigned a value computed from it"));
  CHECK_THAT(beside([&](ReplicaContext&, Tensor<float> x, Tensor<float>) { all_gather(x, {}, here); }),
             starts("all_gather", here) && Catch::Contains("it needs the values of all replicas at the same step"));
  CHECK_THAT(beside([&](ReplicaContext&, Tensor<float> x, Tensor<float>) { broadcast(x, 0, {}, here); }),
             starts("broadcast", here) && Catch::Contains("it needs the values of all replicas at the same step"));
  CHECK_THAT(beside([&](ReplicaContext&, Tensor<float> x, Tensor<float>) { all_reduce(x, Reduction::sum, {.group = {{0, 1}, {2}}}, here); }),
             starts("all_reduce", here) && Catch::Contains("it is over groups of replicas"));
}

}  // namespace test_async
