// SPDX-License-Identifier: Apache-2.0
// Gives the same elements other extents: reshape, flatten, expand_dims, squeeze. Any dtype.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/movement/axis.hpp>

namespace replicator {

// The same elements in row-major order with other extents. One extent may be -1: it follows from the others.
template <Element T>
Tensor<T> reshape(Tensor<T> x, std::vector<std::int64_t> extents,
                  std::source_location where = std::source_location::current()) {
  const Shape shape = detail::at_line("reshape", where, [&] {
    std::int64_t known = 1, open = 0;
    for (const auto extent : extents) extent == -1 ? ++open : known = Shape::product(known, extent);
    if (open > 1 || (open == 1 && (known == 0 || x.shape().elements() % known != 0)))
      throw BuildError{"the extent -1 cannot be found for " + x.any().type().text() + ": the others multiply to " +
                       std::to_string(known) + ", and only one may be -1"};
    for (auto& extent : extents)
      if (extent == -1) extent = x.shape().elements() / known;
    return Shape{extents};
  });
  return Tensor<T>{replicator::reshape(x.any(), shape, Location{where})};
}

// The same with a shape that is known at run time: rp::reshape(x, y.shape()).
template <Element T, std::same_as<Shape> S>
Tensor<T> reshape(Tensor<T> x, const S& shape, std::source_location where = std::source_location::current()) {
  return reshape(x, std::vector<std::int64_t>(shape.begin(), shape.end()), where);
}

// [N, ...] -> [N, the product of the other extents]
template <Element T>
Tensor<T> flatten(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::at_line("flatten", where, [&] {
    (void)detail::require_axis(0, x.shape().rank());
    std::int64_t rest = 1;
    for (std::size_t axis = 1; axis < x.shape().rank(); ++axis) rest *= x.shape()[axis];
    return Tensor<T>{replicator::reshape(x.any(), Shape{x.shape()[0], rest}, Location{where})};
  });
}

// Adds an axis of extent 1 before `axis` of x (-1: after the last).
template <Element T>
Tensor<T> expand_dims(Tensor<T> x, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return detail::at_line("expand_dims", where, [&] {
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, x.shape().rank() + 1));
    Shape shape;
    for (std::size_t i = 0; i <= x.shape().rank(); ++i) shape.push_back(i == at ? 1 : x.shape()[i < at ? i : i - 1]);
    return Tensor<T>{replicator::reshape(x.any(), shape, Location{where})};
  });
}

// Removes an axis of extent 1 (-1: the last). Throws BuildError where its extent is not 1.
template <Element T>
Tensor<T> squeeze(Tensor<T> x, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return detail::at_line("squeeze", where, [&] {
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, x.shape().rank()));
    if (x.shape()[at] != 1)
      throw BuildError{"axis " + std::to_string(axis) + " of " + x.any().type().text() + " is not of extent 1"};
    Shape shape;
    for (std::size_t i = 0; i < x.shape().rank(); ++i)
      if (i != at) shape.push_back(x.shape()[i]);
    return Tensor<T>{replicator::reshape(x.any(), shape, Location{where})};
  });
}

}  // namespace replicator
