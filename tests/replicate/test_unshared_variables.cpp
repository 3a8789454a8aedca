// SPDX-License-Identifier: Apache-2.0
// A warning for a later step that computes with new variables where it seems to mean those of an earlier one.
#include <catch2/catch.hpp>

#include <string>

#include <replicator/nn/optimizers/moving_average.hpp>
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

// What is said on stderr where a step that trains "scale" is replicated, and then this step.
template <class StepFn>
std::string said(StepFn later) {
  const TemporaryFolder folder;
  return test::told(folder, [&] {
    Replicator repl{on_devices(2, 1)};
    auto train = repl.replicate([](ReplicaContext& replica) {
      const auto loss = read(replica, "scale");
      nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
      return loss;
    });
    auto other = repl.replicate(later);
  });
}

}  // namespace

TEST_CASE("a later step that misspells a trained variable, or its scope, is told of") {
  const auto text = said([](ReplicaContext& replica) { return read(replica, "model/scale") + read(replica, "other"); });
  CHECK_THAT(text, Catch::StartsWith("replicator: a later step declares \"model/scale\" at ") &&
                       Catch::Contains("test_unshared_variables.cpp:") &&
                       Catch::EndsWith(", and 1 more, and does not train it. An earlier step trains \"scale\", also float32[2], which this step does not use. If they "
                                       "are one variable, give both the same name and scope; otherwise declare \"model/scale\" with {.trainable = false}\n"));
  CHECK_THAT(said([](ReplicaContext& replica) { return read(replica, "scales"); }), Catch::Contains("trains \"scale\""));
}

TEST_CASE("no warning where a step reads trained variables, or its own are trained, unlike them, or marked as untrained") {
  CHECK(said([](ReplicaContext& replica) { return read(replica, "scale"); }).empty());
  CHECK(said([](ReplicaContext& replica) { return read(replica, "scale") + read(replica, "scales"); }).empty());
  CHECK(said([](ReplicaContext& replica) { return read(replica, "scales", {3}); }).empty());
  CHECK(said([](ReplicaContext& replica) { return read(replica, "bias"); }).empty());
  CHECK(said([](ReplicaContext& replica) { return sum(replica.variable<float>("scales", {2}, Initializer::constant(1), {.trainable = false}).read()); }).empty());
  CHECK(said([](ReplicaContext& replica) {
          const auto loss = read(replica, "scales");
          nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
          return loss;
        }).empty());
}

TEST_CASE("no warning where the earlier step trains nothing") {
  const TemporaryFolder folder;
  const auto text = test::told(folder, [&] {
    Replicator repl{on_devices(2, 1)};
    auto encode = repl.replicate([](ReplicaContext& replica) { return read(replica, "encoder/bias"); });
    auto decode = repl.replicate([](ReplicaContext& replica) { return read(replica, "decoder/bias"); });
  });
  CHECK(text.empty());
}

TEST_CASE("reading moving averages of variables that are trained without any is refused") {
  const auto evaluate = [](ReplicaContext& replica) {
    const auto averages = nn::read_averages(replica);
    return read(replica, "scale");
  };
  CHECK_THROWS_WITH(said(evaluate), Catch::StartsWith("read_averages was asked to read \"scale\" at test_unshared_variables.cpp:") &&
                                        Catch::EndsWith(" as its moving average, and the step that trains it keeps none: train with "
                                                        "rp::nn::averaged(optimizer, 0.999) in that step, or evaluate without read_averages"));
  const auto train = [](ReplicaContext& replica, const char* name, const auto& optimizer) {
    const auto loss = read(replica, name);
    optimizer.minimize(replica, loss);
    return loss;
  };
  const auto sgd = nn::sgd({.learning_rate = 0.1});
  Replicator repl{on_devices(2, 1)};
  auto before = repl.replicate(evaluate);  // nothing has been trained yet
  auto one = repl.replicate([&](ReplicaContext& replica) { return train(replica, "first", sgd); });
  auto other = repl.replicate([&](ReplicaContext& replica) { return train(replica, "second", nn::averaged(sgd, 0.5)); });
  auto both = repl.replicate([&](ReplicaContext& replica) {
    const auto averages = nn::read_averages(replica);
    return read(replica, "first") + read(replica, "second");
  });
  CHECK(std::get<0>(both.step())[0].item() == 4);
}

}  // namespace test_unshared_variables
