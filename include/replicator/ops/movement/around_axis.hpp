// SPDX-License-Identifier: Apache-2.0
// Splits a tensor's extents at an axis: those before it, its own, and those behind it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <replicator/core/shape.hpp>

namespace replicator::detail {

// The extents around an axis, each as one product. `inner` is the distance between neighbours along the axis.
struct AroundAxis {
  std::int64_t outer = 1, extent = 1, inner = 1;
};
inline AroundAxis around_axis(const Shape& shape, std::size_t axis) {
  AroundAxis result;
  for (std::size_t i = 0; i < shape.rank(); ++i)
    (i < axis    ? result.outer
     : i == axis ? result.extent
                 : result.inner) *= shape[i];
  return result;
}

}  // namespace replicator::detail
