// SPDX-License-Identifier: Apache-2.0
// What layers that normalise over the last axes of a tensor share: layer_norm and rms_norm.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn::detail {

// The axes that are normalised together, and the shape of the variables for them.
struct LastAxes {
  Axes axes;
  Shape shape;
};

// The last `count` axes of x. `what` and `name`: of the layer, for errors. Throws BuildError if x has fewer axes or no elements,
// and for an epsilon that is negative or not finite.
inline LastAxes last_axes(const ReplicaContext& replica, AnyTensor x, std::string_view what, std::string_view name, std::int64_t count, double epsilon,
                          std::source_location where) {
  const auto rank = static_cast<std::int64_t>(x.shape().rank());
  if (count < 1 || count > rank || x.shape().elements() == 0)
    throw BuildError{"replica " + std::to_string(replica.id()) + ": " + std::string{what} + " \"" + std::string{name} + "\" at " + Location{where}.text() +
                     ": asked for the last " + std::to_string(count) + " axes of " + x.type().text() + ": x must have so many axes, and must not be empty"};
  replicator::detail::require_epsilon(epsilon, where);
  LastAxes result;
  for (std::int64_t axis = rank - count; axis < rank; ++axis) {
    result.axes.axes.push_back(axis);
    result.shape.push_back(x.shape()[axis]);
  }
  return result;
}

// 1 / sqrt(squares + epsilon).
template <FloatingElement T>
AnyTensor inverse_root(Tensor<T> squares, double epsilon, std::source_location where) {
  return replicator::detail::map_at(
      squares.graph(), dtype_of<T>, where, [&](Symbol v) { return 1 / sqrt(v + epsilon); }, squares);
}

}  // namespace replicator::nn::detail
