// SPDX-License-Identifier: Apache-2.0
// Segments of a graph: it is cut at the collectives and at the transfers between devices whose results it needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <replicator/graph/placeholder.hpp>

namespace replicator::detail {

// The segment of each node: the number of collectives and of transfers between devices on the longest path to it.
// Inputs from elsewhere thus come from an earlier segment. A collective's segment is at least earliest[ordinal], where given.
inline std::vector<std::uint32_t> segments_of(const Graph& graph, std::span<const std::uint32_t> earliest = {}) {
  std::vector<std::uint32_t> segment(graph.nodes().size());
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    for (const auto input : graph.node(i).inputs) {
      const auto& from = graph.node(input);
      const bool elsewhere = from.device != graph.node(i).device && !from.leaf();
      segment[i] = std::max(segment[i], segment[input.node] + (elsewhere || from.get<Placeholder>() ? 1 : 0));
    }
    const auto* placeholder = graph.node(i).get<Placeholder>();
    if (placeholder && !earliest.empty()) segment[i] = std::max(segment[i], earliest[placeholder->ordinal]);
  }
  return segment;
}

}  // namespace replicator::detail
