// SPDX-License-Identifier: Apache-2.0
// Objectives that need more than a mean over replicas: contrastive learning and a gradient penalty.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/replicator.hpp>

#include "deployments.hpp"

namespace test_objectives {

using namespace replicator;
using namespace replicator::detail;
using test::on_devices;

namespace {

constexpr std::int64_t pairs = 12, width = 6, features = 4;

// Two views of `pairs` things over all replicas, the same ones however many replicas share them.
std::pair<Array<float>, Array<float>> views(const InputContext& ctx, std::int64_t position) {
  const auto mine = ctx.replica_batch(pairs);
  Array<float> one{{mine, width}}, other{{mine, width}};
  for (std::int64_t i = 0; i < mine; ++i) {
    PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica() * mine + i)};
    for (std::int64_t k = 0; k < width; ++k) {
      const float thing = 2 * random.uniform() - 1;
      one[i * width + k] = thing + 0.1f * random.uniform();
      other[i * width + k] = thing + 0.1f * random.uniform();
    }
  }
  return {one, other};
}

struct Learned {
  std::vector<double> losses;
  std::vector<float> weights;
  std::string digest;
};

template <class InputFn, class StepFn>
Learned learn(const Deployment& where, InputFn input_fn, StepFn step_fn, int steps, const char* variable) {
  Replicator repl{where};
  auto train = repl.replicate(input_fn, step_fn);
  Learned learned;
  for (auto [loss] : train.steps(steps)) learned.losses.push_back(static_cast<double>(mean(loss)));
  const auto& weights = repl.value(variable).template as<float>();
  learned.weights.assign(weights.begin(), weights.end());
  learned.digest = repl.digest();
  return learned;
}

// InfoNCE (van den Oord et al., 2018): each first view must find its second view among those of all replicas.
Learned contrast(int replicas, int devices) {
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([ctx](std::int64_t position) {
      auto [one, other] = views(ctx, position);
      return std::tuple{std::move(one), std::move(other)};
    });
  };
  const auto step_fn = [](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {  // [b, width] each
    const auto embed = [&](Tensor<float> view) {
      const auto z = matmul(view, replica.variable<float>("w", {width, features}, nn::he_normal(width)).read());
      return z / sqrt(sum(z * z, Axes{1}.kept()));  // [b, features] on the sphere
    };
    const auto queries = embed(x), keys = all_gather(embed(y));  // keys: [R b, features]
    const auto b = x.shape()[0];
    Array<std::int32_t> own{{b}};
    for (std::int64_t i = 0; i < b; ++i) own[i] = static_cast<std::int32_t>(replica.id() * b + i);
    const auto logits = matmul(queries, keys, {.transpose_b = true}) * 5.0f;  // [b, R b]
    const auto loss = mean(softmax_cross_entropy(logits, constant(replica.graph(), own)));
    nn::sgd({.learning_rate = 0.5}).minimize(replica, loss);
    return loss;
  };
  return learn(on_devices(replicas, devices), input_fn, step_fn, 4, "w");
}

// A critic whose slope at the data is drawn to one (Gulrajani et al., 2017): the loss holds a gradient, so its own
// gradient is of second order.
Learned penalise(int replicas, int devices) {
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> images{{ctx.replica_batch(8), 1, 6, 6}};
      for (auto& value : images) value = 2 * random.uniform() - 1;
      return images;
    });
  };
  const auto step_fn = [](ReplicaContext& replica, Tensor<float> images) {  // [b, 1, 6, 6]
    const auto h = tanh(nn::conv2d(replica, images, "conv", {.features = 4, .kernel = {3, 3}, .padding = {}}));
    const auto score = sum(nn::linear(replica, global_average_pool(h), "head", {.features = 1}));
    const auto slope = gradient(score, images);                     // [b, 1, 6, 6]
    const auto norm = sqrt(sum(slope * slope, {1, 2, 3}) + 1e-6f);  // [b]
    const auto penalty = mean(map([](auto n) { return pow(n - 1, 2); }, norm));
    nn::sgd({.learning_rate = 0.2, .momentum = 0.9}).minimize(replica, penalty);
    return penalty;
  };
  return learn(on_devices(replicas, devices), input_fn, step_fn, 60, "conv.weight");
}

}  // namespace

TEST_CASE("contrastive learning over R replicas of batch B is that of one replica of R * B, in loss and gradients") {
  const auto alone = contrast(1, 1);
  CHECK(alone.losses.back() < alone.losses.front());
  for (const int replicas : {2, 3, 4, 6, 12}) {
    const auto shared = contrast(replicas, 1);
    for (std::size_t step = 0; step < alone.losses.size(); ++step) CHECK(shared.losses[step] == Approx(alone.losses[step]).epsilon(1e-5));
    // After a step the weights differ from the first ones by the rate times the gradients.
    for (std::size_t i = 0; i < alone.weights.size(); ++i) CHECK(std::abs(shared.weights[i] - alone.weights[i]) < 2e-5f);
    for (const int devices : {2, 3})
      if (devices <= replicas) CHECK(contrast(replicas, devices).digest == shared.digest);
  }
}

TEST_CASE("a gradient penalty trains: the slope of the critic comes to one, with the same bits on any placement") {
  const auto alone = penalise(4, 1);
  CHECK(alone.losses.front() > 0.5);
  CHECK(alone.losses.back() < 0.05);
  for (const int devices : {2, 3, 4}) CHECK(penalise(4, devices).digest == alone.digest);
}

}  // namespace test_objectives
