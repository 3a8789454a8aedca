// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/target.hpp>
#include <replicator/ops/reduce.hpp>

#include "../support/evaluate.hpp"

namespace test_target {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;

namespace {

// w of the network at 7, of its target at 3 before step `step`: what the target is in this step.
double target_in(std::uint64_t step, std::int64_t period) {
  Graph graph;
  ReplicaContext replica{graph};
  const auto network = [&] {
    const auto scope = replica.scope("net");
    return replica.variable<float>("w", {2}, Initializer::ones()).read();
  };
  network();
  nn::update_targets(replica, "net", period);
  const auto target = [&] {
    const auto scope = replica.scope("target");
    return network();
  }();
  CHECK(replica.trainable_variables<float>().size() == 1);
  EvaluateOptions options;
  options.context.step = step;
  const auto of = [](double value) { return array_of({DType::float32, Shape{2}}, {value, value}); };
  options.variables = {{"net.w", of(7)}, {"target.net.w", of(3)}};
  return doubles(evaluate(target, {}, options))[1];
}

}  // namespace

TEST_CASE("a target is made equal in the first step, then in every step of its period, and stays otherwise") {
  for (const std::uint64_t step : {0ull, 3ull, 6ull, 3000000000ull}) CHECK(target_in(step, 3) == 7);
  for (const std::uint64_t step : {1ull, 2ull, 4ull, 2999999999ull}) CHECK(target_in(step, 3) == 3);
  CHECK(target_in(5, 1) == 7);
}

TEST_CASE("no gradient passes from a target to its network, in a step that makes them equal neither") {
  for (const std::uint64_t step : {0ull, 1ull}) {
    Graph graph;
    ReplicaContext replica{graph};
    const auto network = [&] { return replica.variable<float>("net.w", {2}, Initializer::ones()); };
    network().read();
    nn::update_targets(replica, "net", 2);
    const auto difference = network().read() - replica.variable<float>("target.net.w", {2}, Initializer::ones(), {.trainable = false}).read() * 0.5f;
    const auto gradient = nn::variable_gradients(sum(difference * difference), std::vector{network()})[0];
    EvaluateOptions options;
    options.context.step = step;
    const auto of = [](double value) { return array_of({DType::float32, Shape{2}}, {value, value}); };
    options.variables = {{"net.w", of(8)}, {"target.net.w", of(4)}};
    CHECK(doubles(evaluate(gradient, {}, options))[0] == 2 * (8 - (step == 0 ? 4 : 2)));
  }
}

TEST_CASE("a target of nothing, of no period, or within a scope, is refused") {
  Graph graph;
  ReplicaContext replica{graph};
  CHECK_THROWS_WITH(nn::update_targets(replica, "net", 3), Contains("update_targets at ") && Contains("found 0 variables below \"net\""));
  CHECK_THROWS_WITH(target_in(1, 0), Contains("a period of 0"));
  const auto scope = replica.scope("agent");
  replica.variable<float>("net.w", {2}, Initializer::ones()).read();
  CHECK_THROWS_WITH(nn::update_targets(replica, "agent.net", 3), Contains("was called within the scope \"agent.\""));
}

}  // namespace test_target
