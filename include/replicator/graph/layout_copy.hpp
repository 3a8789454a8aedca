// SPDX-License-Identifier: Apache-2.0
// LayoutCopy: the operation that copies a tensor into another memory layout.
#pragma once

#include <span>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail {

// The same elements in another layout, with zeros as padding. The planner inserts it where a kernel demands a layout.
struct LayoutCopy {
  static constexpr std::string_view name = "layout_copy";
  Layout to;

  template <class V>
  void describe(V& v) const {
    v("plain", to.plain);
    v("strides", to.strides);
    v("blocks", to.blocks);
    v("axis", to.axis);
    v("size", to.size);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
};

}  // namespace replicator::detail
