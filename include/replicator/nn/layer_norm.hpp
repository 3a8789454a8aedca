// SPDX-License-Identifier: Apache-2.0
// Layer normalisation: each example is normalised by itself.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/nn/normalised_axes.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct LayerNormOptions {
  Axes over = -1;  // the axes that are normalised together; {1} of [N, C, H, W] are the channels of each pixel
  double epsilon = 1e-5;
  bool affine = true;  // false: no variables
};

// Normalises each example over the axes `over`, by default the last one, by its own mean and variance. Same shape.
// Variables: <name>.weight, <name>.bias, both of the shape of the normalised axes, initially 1 and 0. For bfloat16,
// computation and variables are float32.
// A batch of no examples gives none. Throws BuildError for an axis that x lacks, for examples without elements, and for an epsilon
// that is negative or not finite.
// Source: Ba, Kiros, Hinton, "Layer normalization", 2016.
template <FloatingElement T>
Tensor<T> layer_norm(ReplicaContext& replica, Tensor<T> x, std::string_view name, const LayerNormOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(layer_norm(replica, cast<float>(x, where), name, options, where), where);
  const auto axes = detail::normalised_axes(replica, x, "layer_norm", name, options.over, options.epsilon, where);
  const auto by = moments(x, axes.axes, where);
  const AnyTensor scale = detail::inverse_root(by.variance, options.epsilon, where);
  if (!options.affine)
    return Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol v, Symbol m, Symbol s) { return (v - m) * s; }, x, by.mean, scale)};
  const auto scope = replica.scope(name);
  const auto gamma = detail::beside(replica.variable<T>("weight", axes.shape, Initializer::ones(), {}, where).read(where), axes, where);
  const auto beta = detail::beside(replica.variable<T>("bias", axes.shape, Initializer::zeros(), {}, where).read(where), axes, where);
  return Tensor<T>{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where,
      [](Symbol v, Symbol m, Symbol s, Symbol g, Symbol b) { return (v - m) * s * g + b; }, x, by.mean, scale, gamma,
      beta)};
}

}  // namespace replicator::nn
