// SPDX-License-Identifier: Apache-2.0
// Losses of predictions against numbers: mean squared error and Huber's loss.
#pragma once

#include <source_location>
#include <string>

#include <replicator/core/number_text.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/losses/equal_shapes.hpp>
#include <replicator/ops/reduce.hpp>

namespace replicator {

// The mean of (a - b)^2 over all elements: a scalar. Throws BuildError unless the shapes are equal.
template <FloatingElement T>
Tensor<T> mean_squared_error(Tensor<T> a, Tensor<T> b, std::source_location where = std::source_location::current()) {
  detail::require_equal_shapes("mean_squared_error", a, b, where);
  const Tensor<T> squares{detail::map_at(
      a.graph(), dtype_of<T>, where, [](Symbol x, Symbol y) { return (x - y) * (x - y); }, a, b)};
  return mean(squares, {}, where);
}

struct HuberOptions {
  double delta = 1;  // beyond this distance the loss is linear
};

// For each element, with d = a - b: d^2 / 2 where |d| <= delta, and delta (|d| - delta / 2) beyond. Same shape. PyTorch's
// smooth_l1_loss with beta = delta is this divided by delta; for delta = 1 they are equal. Throws BuildError unless the shapes
// are equal and delta > 0.
// Source: Huber, "Robust estimation of a location parameter", 1964.
template <FloatingElement T>
Tensor<T> huber(Tensor<T> a, Tensor<T> b, const HuberOptions& options = {},
                std::source_location where = std::source_location::current()) {
  detail::require_equal_shapes("huber", a, b, where);
  const double delta = options.delta;
  if (!(delta > 0))
    throw BuildError{"huber at " + Location{where}.text() + ": delta must be more than 0, found " +
                     detail::number_text(delta)};
  return Tensor<T>{detail::map_at(
      a.graph(), dtype_of<T>, where,
      [&](Symbol x, Symbol y) {
        const Symbol d = x - y;
        return select(abs(d) <= delta, 0.5 * d * d, delta * (abs(d) - 0.5 * delta));
      },
      a, b)};
}

}  // namespace replicator
