// SPDX-License-Identifier: Apache-2.0
// A warning for a later step that computes with new variables where it seems to mean those of an earlier one.
#include <catch2/catch.hpp>

#include <string>

#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/replica_context.hpp>

#include "../support/told.hpp"
#include "deployments.hpp"

namespace test_unshared_variables {

using namespace replicator;
using test::on_devices;

namespace {

Tensor<float> read(ReplicaContext& replica, const char* name, const Shape& shape = {2}) { return replicator::sum(replica.variable<float>(name, shape, Initializer::constant(1)).read()); }

// What is said on stderr where a step that trains "w" is replicated, and then this step.
template <class StepFn>
std::string said(StepFn later) {
  const TemporaryFolder folder;
  return test::told(folder, [&] {
    Replicator repl{on_devices(2, 1)};
    auto train = repl.replicate([](ReplicaContext& replica) {
      const auto loss = read(replica, "w");
      nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
      return loss;
    });
    auto other = repl.replicate(later);
  });
}

}  // namespace

TEST_CASE("a later step with a misspelt variable is told of, with the variable that it leaves alone") {
  const auto text = said([](ReplicaContext& replica) { return read(replica, "v") + read(replica, "v2"); });
  CHECK_THAT(text, Catch::StartsWith("replicator: a later step declares \"v\" at ") &&
                       Catch::Contains("test_unshared_variables.cpp:") &&
                       Catch::EndsWith(" and 1 other variable(s), trains none of them, and does not use \"w\" of an earlier step, which is float32[2] too: "
                                       "if both are meant to be one variable, declare them with the same name and scope\n"));
}

TEST_CASE("no warning where a later step trains its variables, reads those of earlier steps too, or has variables of other shapes") {
  CHECK(said([](ReplicaContext& replica) { return read(replica, "w"); }).empty());
  CHECK(said([](ReplicaContext& replica) { return read(replica, "w") + read(replica, "v"); }).empty());
  CHECK(said([](ReplicaContext& replica) { return read(replica, "v", {3}); }).empty());
  CHECK(said([](ReplicaContext& replica) {
          const auto loss = read(replica, "v");
          nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
          return loss;
        }).empty());
}

}  // namespace test_unshared_variables
