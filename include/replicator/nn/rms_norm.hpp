// SPDX-License-Identifier: Apache-2.0
// Root mean square normalisation: layer normalisation without the mean.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/nn/last_axes.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct RmsNormOptions {
  std::int64_t axes = 1;  // the number of last axes that are normalised together
  double epsilon = 1e-6;
  bool affine = true;  // false: no variable
};

// x / sqrt(mean(x^2) + epsilon) weight, with the mean over the last `axes` axes. Same shape.
// Variable: <name>.weight of the shape of the normalised axes, initially 1. For bfloat16, computation and variable are float32.
// Throws BuildError if x has fewer axes or no elements, and for an epsilon that is negative or not finite.
// Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.
template <FloatingElement T>
Tensor<T> rms_norm(ReplicaContext& replica, Tensor<T> x, std::string_view name, const RmsNormOptions& options = {},
                   std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(rms_norm(replica, cast<float>(x, where), name, options, where), where);
  const auto [axes, normalised] = detail::last_axes(replica, x, "rms_norm", name, options.axes, options.epsilon, where);
  const auto squares = mean(x * x, axes.kept(), where);
  const AnyTensor scale = detail::inverse_root(squares, options.epsilon, where);
  if (!options.affine)
    return Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol v, Symbol s) { return v * s; }, x, scale)};
  const auto scope = replica.scope(name);
  const auto gamma = replica.variable<T>("weight", normalised, Initializer::ones(), {}, where).read(where);
  return Tensor<T>{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v, Symbol s, Symbol g) { return v * s * g; }, x, scale, gamma)};
}

}  // namespace replicator::nn
