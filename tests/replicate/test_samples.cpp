// SPDX-License-Identifier: Apache-2.0
// Stateful layers, random samples and second-order derivatives in training steps: the placement never changes the bits.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/replicator.hpp>

#include "deployments.hpp"

namespace test_samples {

using namespace replicator;
using namespace replicator::detail;

namespace {

// A small classifier of images in which every layer and activation is another.
Tensor<float> logits_of(ReplicaContext& replica, Tensor<float> images) {
  const nn::SpectralNormOptions spectral;
  auto x = nn::conv2d(replica, images, "conv", {.features = 6, .kernel = {3, 3}, .spectral_norm = spectral});
  x = silu(nn::group_norm(replica, x, "group", {.groups = 2}));
  x = gelu(nn::instance_norm(replica, x, "instance", {.affine = true}));
  x = elu(nn::layer_norm(replica, flatten(x), "layer"));
  return nn::linear(replica, x, "fc", {.features = 5, .spectral_norm = spectral});
}

struct Outcome {
  std::string digest;
  std::vector<float> losses;
  std::vector<std::vector<std::int32_t>> samples;  // by step and replica
};

Outcome train(const Deployment& where, int steps) {
  Replicator repl{where};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> images{{4, 3, 5, 5}};
      for (auto& value : images) value = 2 * random.uniform() - 1;
      Array<std::int32_t> labels{{4}};
      for (auto& label : labels) label = static_cast<std::int32_t>(random.below(5));
      return std::tuple{std::move(images), std::move(labels)};
    });
  };
  const auto step_fn = [](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto logits = logits_of(replica, images);
    const auto drawn = categorical(logits);
    const auto relaxed = gumbel_softmax(logits, {.temperature = 0.5f, .hard = true});
    const auto target = one_hot(labels, 5);
    // The length of the gradient with respect to the images is pulled to 1: Gulrajani et al., 2017.
    const auto slope = gradient(sum(logits_of(replica, images)), images);
    const auto length = sqrt(sum(slope * slope, {1, 2, 3}) + 1e-6f);
    const auto penalty = mean_squared_error(length, full<float>(replica, {4}, 1));
    const auto loss = mean(sigmoid_cross_entropy(logits, target)) + mean(huber(relaxed, target)) +
                      mean(categorical_kl_divergence(logits, zeros_like(logits))) +
                      mean(multiclass_hinge(logits, labels)) + penalty;
    nn::sgd({.learning_rate = 0.05f, .momentum = 0.9f}).minimize(replica, loss);
    return std::tuple{loss, drawn};
  };
  auto training = repl.replicate(input_fn, step_fn);
  Outcome outcome;
  for (const auto& [loss, drawn] : training.steps(steps))
    for (int replica = 0; replica < where.replicas; ++replica) {
      outcome.losses.push_back(loss[replica].item());
      outcome.samples.emplace_back(drawn[replica].begin(), drawn[replica].end());
    }
  outcome.digest = repl.digest();
  return outcome;
}

}  // namespace

TEST_CASE("samples, spectral norm and a gradient penalty have the same bits on every placement") {
  for (const int replicas : {1, 3, 4}) {
    const auto alone = train(test::on_devices(replicas, 1), 3);
    for (const float loss : alone.losses) CHECK(std::isfinite(loss));
    for (int devices = 2; devices <= replicas; ++devices)
      for (const std::int64_t bucket_bytes : {64, 4 << 20}) {
        auto deployment = test::on_devices(replicas, devices);
        deployment.bucket_bytes = bucket_bytes;
        const auto other = train(deployment, 3);
        INFO(replicas << " replicas on " << devices << " devices, buckets of " << bucket_bytes << " B");
        CHECK(other.digest == alone.digest);
        CHECK(other.losses == alone.losses);
        CHECK(other.samples == alone.samples);
      }
  }
}

TEST_CASE("replicas and steps draw different samples, and a step with a gradient penalty learns") {
  const auto outcome = train(test::on_devices(2, 1), 60);
  int equal = 0, all = 0;
  for (std::size_t i = 1; i < outcome.samples.size(); ++i)
    for (std::size_t e = 0; e < 4; ++e, ++all) equal += outcome.samples[i][e] == outcome.samples[i - 1][e] ? 1 : 0;
  CHECK(equal < all / 2);
  float first = 0, last = 0;
  for (std::size_t i = 0; i < 20; ++i)
    first += outcome.losses[i], last += outcome.losses[outcome.losses.size() - 1 - i];
  CHECK(last < first);
}

}  // namespace test_samples
