// SPDX-License-Identifier: Apache-2.0
// How the elements of a tensor lie in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <replicator/core/shape.hpp>

namespace replicator {

// Plain row-major unless `blocks` > 0 or the strides say otherwise. A blocked layout splits some axes into an outer
// part with a stride and inner blocks that lie contiguously, the last block innermost: nChw16c is
// axis = {1}, size = {16}, strides of the outer N, C/16, H, W in elements.
struct Layout {
  static constexpr std::size_t max_blocks = 4;

  bool plain = true;  // row-major; the other members are then unused
  std::array<std::int64_t, Shape::max_rank> strides{};
  std::uint8_t blocks = 0;
  std::array<std::uint8_t, max_blocks> axis{};
  std::array<std::int32_t, max_blocks> size{};
  std::int64_t storage = 0;  // elements in memory, padding included

  friend bool operator==(const Layout&, const Layout&) = default;
};

// Elements that memory must hold for a tensor of this shape.
inline std::int64_t storage_elements(const Layout& layout, const Shape& shape) {
  return layout.plain ? shape.elements() : layout.storage;
}

// True where no element of the storage is padding.
inline bool is_dense(const Layout& layout, const Shape& shape) { return storage_elements(layout, shape) == shape.elements(); }

}  // namespace replicator
