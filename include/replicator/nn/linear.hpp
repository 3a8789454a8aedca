// SPDX-License-Identifier: Apache-2.0
// A linear (fully connected) layer: a matrix product with a bias.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string_view>

#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/layer_text.hpp>
#include <replicator/nn/spectral_norm.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct LinearOptions {
  std::int64_t features = 0;  // outputs; must be given
  bool bias = true;
  std::optional<Initializer> initializer = {};            // of the weight; default: inverse_root_uniform(fan_in)
  std::optional<SpectralNormOptions> spectral_norm = {};  // if set, the weight is <name>.weight_orig and <name>.weight_u
};

// x weight^T + bias: [.., inputs] -> [.., features].
// Variables: <name>.weight [features, inputs], <name>.bias [features]; float32 for bfloat16.
// Throws BuildError unless x has at least two axes and features >= 1.
template <FloatingElement T>
Tensor<T> linear(ReplicaContext& replica, Tensor<T> x, std::string_view name, const LinearOptions& options,
                 std::source_location where = std::source_location::current()) {
  if (x.shape().rank() < 2 || options.features < 1)
    throw BuildError{detail::layer_text(replica, "linear", name, where) +
                     ": x must be [.., inputs] with at least two axes, and features at least 1; found " +
                     x.any().type().text() + " and " + std::to_string(options.features) + " features"};
  const auto scope = replica.scope(name);
  const auto inputs = x.shape()[x.shape().rank() - 1];
  const Initializer uniform = inverse_root_uniform(inputs);
  const auto weight = detail::layer_weight<T>(replica, {options.features, inputs},
                                              options.initializer.value_or(uniform), options.spectral_norm, 0, where);
  const Tensor<T> y = matmul(x, weight, {.transpose_b = true}, where);
  if (!options.bias) return y;
  return Tensor<T>{apply(replicator::detail::ScalarOp::add, {y, detail::layer_bias<T>(replica, options.features, uniform, where)}, where)};
}

}  // namespace replicator::nn
