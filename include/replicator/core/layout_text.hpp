// SPDX-License-Identifier: Apache-2.0
// A memory layout as text, for messages and reports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <replicator/core/layout.hpp>

namespace replicator::detail {

// "row-major", or a tag such as "ABcd16b16a". The letters a, b, ... are the axes from the outermost to the innermost in
// memory, in capitals if the axis has blocks. The blocks follow.
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
