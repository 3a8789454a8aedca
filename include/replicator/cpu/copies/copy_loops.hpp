// SPDX-License-Identifier: Apache-2.0
// Describes a copy between two layouts as a nest of loops with a stride on each side.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>

namespace replicator::detail::cpu::detail {

// One loop of the nest: a digit of an axis' index in a mixed radix.
struct CopyLoop {
  std::int64_t extent = 1;
  std::int64_t from = 0;  // strides; in elements, unless said otherwise
  std::int64_t to = 0;
  std::size_t axis = 0;
  std::int64_t step = 0;  // weight of the digit, if the axis is cut
  bool cut = false;       // the axis may end within this digit or within one inside it
  bool ends = false;      // cut, but no digit inside it is cut
};

// The weights at which a layout splits the index of `axis`, innermost first, and the stride of each digit.
struct AxisDigits {
  std::vector<std::int64_t> weight{1};
  std::vector<std::int64_t> stride;

  AxisDigits(const Layout& layout, const Shape& shape, std::size_t axis) {
    if (layout.plain) {
      stride = {shape.strides()[axis]};
      return;
    }
    std::int64_t inside = 1;
    for (std::size_t b = layout.blocks; b-- > 0; inside *= layout.size[b])
      if (layout.axis[b] == axis) {
        weight.push_back(weight.back() * layout.size[b]);
        stride.push_back(inside);
      }
    stride.push_back(layout.strides[axis]);
  }
  bool cuts_at(std::int64_t at) const { return std::find(weight.begin(), weight.end(), at) != weight.end(); }
  // The stride of a digit of this weight. The weight may come from the other layout.
  std::int64_t stride_at(std::int64_t at) const {
    std::size_t digit = weight.size() - 1;
    while (weight[digit] > at) --digit;
    return at / weight[digit] * stride[digit];
  }
};

// Appends the loops of an axis. Returns false where the digits of the two layouts do not fit each other.
inline bool add_axis(std::vector<CopyLoop>& loops, std::size_t axis, std::int64_t extent, const AxisDigits& from, const AxisDigits& to) {
  std::vector<std::int64_t> weights = from.weight;
  for (const auto weight : to.weight)
    if (!from.cuts_at(weight)) weights.push_back(weight);
  std::sort(weights.begin(), weights.end());
  for (std::size_t i = weights.size(); i-- > 0;) {
    const bool outermost = i + 1 == weights.size();
    if (!outermost && weights[i + 1] % weights[i] != 0) return false;
    const std::int64_t turns = outermost ? (extent + weights[i] - 1) / weights[i] : weights[i + 1] / weights[i];
    const bool cut = extent % weights[outermost ? i : i + 1] != 0;
    if (turns != 1 || cut)
      loops.push_back({turns, from.stride_at(weights[i]), to.stride_at(weights[i]), axis, cut ? weights[i] : 0, cut, cut && extent % weights[i] == 0});
  }
  return true;
}

// The loops of a copy, outermost first in the order of the result. Neighbours that are one loop on both sides are merged. Empty
// where blocks of the two layouts do not divide each other.
inline std::optional<std::vector<CopyLoop>> copy_loops(const Shape& shape, const Layout& from, const Layout& to) {
  std::vector<CopyLoop> loops;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis)
    if (!add_axis(loops, axis, shape[axis], {from, shape, axis}, {to, shape, axis})) return std::nullopt;
  std::stable_sort(loops.begin(), loops.end(), [](const auto& a, const auto& b) { return a.to > b.to; });
  std::vector<CopyLoop> merged;
  for (const auto& loop : loops) {
    auto* outer = merged.empty() ? nullptr : &merged.back();
    if (outer && !outer->cut && !loop.cut && outer->from == loop.from * loop.extent && outer->to == loop.to * loop.extent)
      *outer = {outer->extent * loop.extent, loop.from, loop.to, loop.axis};
    else
      merged.push_back(loop);
  }
  return merged;
}

// The position of the surrounding loops: for each axis that is cut, the sum of its digits.
using CopyPosition = std::array<std::int64_t, Shape::max_rank>;

// Number of turns of the loop that lie inside the tensor.
inline std::int64_t turns(const CopyLoop& loop, const Shape& shape, const CopyPosition& at) {
  if (!loop.cut) return loop.extent;
  const std::int64_t left = shape[static_cast<std::int64_t>(loop.axis)] - at[loop.axis];
  return std::clamp<std::int64_t>((left + loop.step - 1) / loop.step, 0, loop.extent);
}

}  // namespace replicator::detail::cpu::detail
