// SPDX-License-Identifier: Apache-2.0
// The networks of D4PG, a distributional actor-critic, with an encoder for pictures.
// Sources: Barth-Maron et al., "Distributed distributional deterministic policy gradients", 2018. The encoder: Yarats,
// Fergus, Lazaric, Pinto, "Mastering visual continuous control", 2021. Here, however, every convolution halves the
// picture, which takes a fifth of the work.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include <replicator/nn/conv2d.hpp>
#include <replicator/nn/layer_norm.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/ops/activation.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/reshape.hpp>

namespace replicator::models {

struct D4pgOptions {
  std::int64_t actions = 1;
  std::vector<std::int64_t> hidden = {256, 256};  // features of the hidden layers of actor and critic
  std::int64_t atoms = 51;                        // of the critic's distribution
  std::int64_t channels = 32;                     // of the encoder's feature maps
  std::int64_t encoded = 50;                      // features that the encoder makes of a picture
};

namespace detail {

// linear, layer norm, tanh; then linear, elu for each further layer.
inline Tensor<float> d4pg_trunk(ReplicaContext& replica, Tensor<float> x, const D4pgOptions& options, std::source_location where) {
  for (std::size_t i = 0; i < options.hidden.size(); ++i) {
    const auto name = std::to_string(i + 1);
    x = nn::linear(replica, x, "linear" + name, {.features = options.hidden[i]}, where);
    x = i == 0 ? tanh(nn::layer_norm(replica, x, "norm", {}, where), where) : elu(x, 1, where);
  }
  return x;
}

}  // namespace detail

// observations [N, features] -> actions [N, actions] in (-1, 1). The last layer's initial weights are small, so the
// first actions are near 0. Like the critic and the encoder, it throws BuildError for shapes and options that do not
// fit.
inline Tensor<float> d4pg_actor(ReplicaContext& replica, Tensor<float> observations, const D4pgOptions& options,
                                std::source_location where = std::source_location::current()) {
  const auto scope = replica.scope("actor");
  const auto x = detail::d4pg_trunk(replica, observations, options, where);
  const nn::LinearOptions last{.features = options.actions, .initializer = Initializer::uniform(-1e-3, 1e-3)};
  return tanh(nn::linear(replica, x, "action", last, where), where);
}

// observations [N, features], actions [N, actions] -> logits of the distribution of returns over the atoms: [N, atoms].
inline Tensor<float> d4pg_critic(ReplicaContext& replica, Tensor<float> observations, Tensor<float> actions, const D4pgOptions& options,
                                 std::source_location where = std::source_location::current()) {
  const auto scope = replica.scope("critic");
  const auto x = detail::d4pg_trunk(replica, concat({observations, actions}, 1, where), options, where);
  return nn::linear(replica, x, "atoms", {.features = options.atoms}, where);
}

// pictures [N, channels, height, width] in [0, 255], at least 31 x 31 pixels -> [N, encoded]: four convolutions, a
// linear layer, layer norm, tanh.
inline Tensor<float> d4pg_encoder(ReplicaContext& replica, Tensor<float> pictures, const D4pgOptions& options,
                                  std::source_location where = std::source_location::current()) {
  const auto scope = replica.scope("encoder");
  Tensor<float> x{replicator::detail::map_at(
      replica.graph(), DType::float32, where, [](Symbol v) { return v / 255 - 0.5; }, pictures)};
  for (int i = 1; i <= 4; ++i)
    x = relu(nn::conv2d(replica, x, "conv" + std::to_string(i), {.features = options.channels, .kernel = {3, 3}, .stride = {2, 2}}, where), where);
  x = nn::linear(replica, flatten(x, where), "linear", {.features = options.encoded}, where);
  return tanh(nn::layer_norm(replica, x, "norm", {}, where), where);
}

}  // namespace replicator::models
