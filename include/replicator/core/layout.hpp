// SPDX-License-Identifier: Apache-2.0
// The memory layout of a tensor: row-major, strided or blocked.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/core/shape.hpp>

namespace replicator {

// Row-major while `plain`; otherwise given by the strides and blocks. A blocked layout splits some axes into an outer
// part with a stride and inner blocks. The blocks are contiguous, the last block innermost. Example: nChw16c has axis =
// {1}, size = {16}, and the strides of the outer N, C/16, H, W, in elements.
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

// The number of elements that memory must hold for a tensor of this shape, padding included.
inline std::int64_t storage_elements(const Layout& layout, const Shape& shape) {
  return layout.plain ? shape.elements() : layout.storage;
}

// Images [N, C, H, W] stored as NHWC: the channels of a pixel lie side by side. For convolution weights: OHWI.
inline Layout channels_last(const Shape& shape) {
  Layout layout;
  layout.plain = false;
  layout.strides = {shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]};
  layout.storage = shape.elements();
  return layout;
}

// Strides in elements. Only for a layout without blocks.
inline std::array<std::int64_t, Shape::max_rank> strides_of(const Layout& layout, const Shape& shape) {
  return layout.plain ? shape.strides() : layout.strides;
}

// Returns the plain layout if `layout` stores every element where row-major does, else `layout`. For example,
// channels_last with one channel or one pixel is plain. That saves copies. Only for a layout without blocks.
inline Layout simplest(const Layout& layout, const Shape& shape) {
  const auto own = strides_of(layout, shape), plain = shape.strides();
  for (std::size_t axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1 && own[axis] != plain[axis]) return layout;
  return Layout{};
}

// The axes from the outermost to the innermost in memory. Only for a layout without blocks.
template <class = void>
std::vector<std::size_t> storage_order(const Layout& layout, const Shape& shape) {
  const auto strides = strides_of(layout, shape);
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) axes.push_back(axis);
  std::stable_sort(axes.begin(), axes.end(), [&](std::size_t a, std::size_t b) { return strides[a] > strides[b]; });
  return axes;
}

// True if no element of the storage is padding.
inline bool is_dense(const Layout& layout, const Shape& shape) { return storage_elements(layout, shape) == shape.elements(); }

}  // namespace replicator
