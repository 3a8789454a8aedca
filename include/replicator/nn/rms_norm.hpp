// SPDX-License-Identifier: Apache-2.0
// Root mean square normalisation: layer normalisation without the mean.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/nn/normalised_axes.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct RmsNormOptions {
  Axes over = -1;  // the axes that are normalised together; {1} of [N, C, H, W] are the channels of each pixel
  double epsilon = 1e-6;
  bool affine = true;  // false: no variable
};

// x / sqrt(mean(x^2) + epsilon) weight, with the mean over the axes `over`, by default the last one. Same shape.
// Variable: <name>.weight of the shape of the normalised axes, initially 1. For bfloat16, computation and variable are float32.
// A batch of no examples gives none. Throws BuildError for an axis that x lacks, for examples without elements, and for an epsilon
// that is negative or not finite.
// Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.
template <FloatingElement T>
Tensor<T> rms_norm(ReplicaContext& replica, Tensor<T> x, std::string_view name, const RmsNormOptions& options = {},
                   std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(rms_norm(replica, cast<float>(x, where), name, options, where), where);
  const auto axes = detail::normalised_axes(replica, x, "rms_norm", name, options.over, options.epsilon, where);
  const auto squares = mean(x * x, axes.axes, where);
  const AnyTensor scale = detail::inverse_root(squares, options.epsilon, where);
  if (!options.affine)
    return Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol v, Symbol s) { return v * s; }, x, scale)};
  const auto scope = replica.scope(name);
  const auto gamma = detail::beside(replica.variable<T>("weight", axes.shape, Initializer::ones(), {}, where).read(where), axes, where);
  return Tensor<T>{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v, Symbol s, Symbol g) { return v * s * g; }, x, scale, gamma)};
}

}  // namespace replicator::nn
