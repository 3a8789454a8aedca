// SPDX-License-Identifier: Apache-2.0
// Axes of a tensor as arguments name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/shape.hpp>

namespace replicator {

using AxisValues = std::vector<std::int64_t>;  // one per axis

namespace detail {
inline void require_per_axis(std::string_view what, const AxisValues& values, const TensorType& x) {
  if (values.size() != x.shape.rank())
    throw BuildError{"found " + std::to_string(values.size()) + " values of " + std::string{what} + " for " + x.text() +
                     ": give one for each axis"};
}
// The axis counted from the front; -1 is the last. Throws BuildError for an axis that does not exist.
inline std::int64_t require_axis(std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank)
    throw BuildError{"asked for axis " + std::to_string(axis) + " of a tensor of " + std::to_string(rank) +
                     " dimensions: axes count from 0, or from -1 at the end"};
  return axis < 0 ? axis + signed_rank : axis;
}
}  // namespace detail

}  // namespace replicator
