// SPDX-License-Identifier: Apache-2.0
// Layer normalisation: each example is normalised by itself.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/nn/last_axes.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct LayerNormOptions {
  std::int64_t axes = 1;  // the number of last axes that are normalised together
  double epsilon = 1e-5;
  bool affine = true;  // false: no variables
};

// Normalises each example over the last `axes` axes by its own mean and variance. Same shape.
// Variables: <name>.weight, <name>.bias, both of the shape of the normalised axes, initially 1 and 0. For bfloat16,
// computation and variables are float32.
// Throws BuildError if x has fewer axes or no elements, and for an epsilon that is negative or not finite.
// Source: Ba, Kiros, Hinton, "Layer normalization", 2016.
template <FloatingElement T>
Tensor<T> layer_norm(ReplicaContext& replica, Tensor<T> x, std::string_view name, const LayerNormOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(layer_norm(replica, cast<float>(x, where), name, options, where), where);
  const auto [axes, normalised] = detail::last_axes(replica, x, "layer_norm", name, options.axes, options.epsilon, where);
  const auto by = moments(x, axes.kept(), where);
  const AnyTensor scale = detail::inverse_root(by.variance, options.epsilon, where);
  if (!options.affine)
    return Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol v, Symbol m, Symbol s) { return (v - m) * s; }, x, by.mean, scale)};
  const auto scope = replica.scope(name);
  const auto gamma = replica.variable<T>("weight", normalised, Initializer::ones(), {}, where).read(where);
  const auto beta = replica.variable<T>("bias", normalised, Initializer::zeros(), {}, where).read(where);
  return Tensor<T>{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where,
      [](Symbol v, Symbol m, Symbol s, Symbol g, Symbol b) { return (v - m) * s * g + b; }, x, by.mean, scale, gamma,
      beta)};
}

}  // namespace replicator::nn
