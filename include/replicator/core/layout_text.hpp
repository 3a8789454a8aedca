// SPDX-License-Identifier: Apache-2.0
// A layout in words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <replicator/core/layout.hpp>

namespace replicator::detail {

// "row-major", or axes a, b, ... from the outermost to the innermost in memory, capitals where blocks are taken of them, then the blocks: "ABcd16b16a".
// Source: oneDNN's memory format tags.
inline std::string layout_text(const Layout& layout) {
  if (layout.plain) return "row-major";
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < Shape::max_rank; ++axis)
    if (layout.strides[axis] > 0) axes.push_back(axis);
  std::stable_sort(axes.begin(), axes.end(), [&](std::size_t a, std::size_t b) { return layout.strides[a] > layout.strides[b]; });
  const auto blocks = layout.axis.begin() + layout.blocks;
  std::string text;
  for (const auto axis : axes) text += static_cast<char>((std::find(layout.axis.begin(), blocks, axis) == blocks ? 'a' : 'A') + static_cast<char>(axis));
  for (std::size_t i = 0; i < layout.blocks; ++i) text += std::to_string(layout.size[i]) + static_cast<char>('a' + layout.axis[i]);
  return text;
}

}  // namespace replicator::detail
