// SPDX-License-Identifier: Apache-2.0
// Root mean square normalisation: layer normalisation without the mean.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

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
  const auto rank = static_cast<std::int64_t>(x.shape().rank());
  if (options.axes < 1 || options.axes > rank || x.shape().elements() == 0)
    throw BuildError{"replica " + std::to_string(replica.id()) + ": rms_norm \"" + std::string{name} + "\" at " + Location{where}.text() +
                     ": asked for the last " + std::to_string(options.axes) + " axes of " + x.any().type().text() +
                     ": x must have so many axes, and must not be empty"};
  replicator::detail::require_epsilon(options.epsilon, where);
  Axes axes;
  Shape normalised;
  for (std::int64_t axis = rank - options.axes; axis < rank; ++axis) {
    axes.axes.push_back(axis);
    normalised.push_back(x.shape()[axis]);
  }
  const auto squares = mean(x * x, axes.kept(), where);
  const AnyTensor scale = replicator::detail::map_at(
      x.graph(), dtype_of<T>, where, [&](Symbol v) { return 1 / sqrt(v + options.epsilon); }, squares);
  if (!options.affine)
    return Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol v, Symbol s) { return v * s; }, x, scale)};
  const auto scope = replica.scope(name);
  const auto gamma = replica.variable<T>("weight", normalised, Initializer::ones(), {}, where).read(where);
  return Tensor<T>{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v, Symbol s, Symbol g) { return v * s * g; }, x, scale, gamma)};
}

}  // namespace replicator::nn
