// SPDX-License-Identifier: Apache-2.0
// Adds two rows of elements, for kernels that no expression describes (scatter_add, cumulative_sum).
#pragma once

#include <cstdint>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

// y[i] = a[i] + b[i] for `count` elements. y may be a or b, but must not overlap them otherwise.
template <class T>
void add_rows(T* y, const T* a, const T* b, std::int64_t count) {
  for (; count >= tile_group; count -= tile_group, y += tile_group, a += tile_group, b += tile_group) {
    REPLICATOR_VECTOR_LOOP
    for (std::int64_t i = 0; i < tile_group; ++i) y[i] = detail::plus(a[i], b[i]);
  }
  for (std::int64_t i = 0; i < count; ++i) y[i] = detail::plus(a[i], b[i]);
}

}  // namespace replicator::detail::cpu
