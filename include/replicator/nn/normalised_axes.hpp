// SPDX-License-Identifier: Apache-2.0
// What layers that normalise over axes of each example share: layer_norm and rms_norm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn::detail {

struct NormalisedAxes {
  Axes axes;        // ascending, and kept with extent 1
  Shape shape;      // of the variables: the extents of the axes
  Shape broadcast;  // the same elements, beside x
};

// The axes that are normalised together. `what` and `name`: of the layer, for errors. Throws BuildError for an axis that x lacks,
// for examples without elements, and for an epsilon that is negative or not finite.
inline NormalisedAxes normalised_axes(const ReplicaContext& replica, AnyTensor x, std::string_view what, std::string_view name, const Axes& over, double epsilon,
                                      std::source_location where) {
  const std::string layer = "replica " + std::to_string(replica.id()) + ": " + std::string{what} + " \"" + std::string{name} + "\"";
  const auto axes = replicator::detail::resolve_axes(over, x.shape(), layer, where);
  if (axes.empty() || replicator::detail::reduced_elements(x.shape(), axes) == 0)
    throw BuildError{layer + " at " + Location{where}.text() + ": x must have an axis, and elements along the normalised axes, found " + x.type().text()};
  replicator::detail::require_epsilon(epsilon, where);
  NormalisedAxes result;
  result.axes.keep = true;
  for (std::int64_t axis = axes.front(); axis < static_cast<std::int64_t>(x.shape().rank()); ++axis) {
    const bool normalised = std::find(axes.begin(), axes.end(), axis) != axes.end();
    result.broadcast.push_back(normalised ? x.shape()[axis] : 1);
    if (normalised) result.shape.push_back(x.shape()[axis]);
  }
  result.axes.axes = axes;
  return result;
}

// The variable beside x.
template <FloatingElement T>
AnyTensor beside(Tensor<T> variable, const NormalisedAxes& axes, std::source_location where) {
  return variable.shape() == axes.broadcast ? variable.any() : reshape(variable.any(), axes.broadcast, where);
}

// 1 / sqrt(squares + epsilon).
template <FloatingElement T>
AnyTensor inverse_root(Tensor<T> squares, double epsilon, std::source_location where) {
  return replicator::detail::map_at(
      squares.graph(), dtype_of<T>, where, [&](Symbol v) { return 1 / sqrt(v + epsilon); }, squares);
}

}  // namespace replicator::nn::detail
