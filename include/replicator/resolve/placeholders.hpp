// SPDX-License-Identifier: Apache-2.0
// Finds the placeholders of a graph, and names them for messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <replicator/graph/graph.hpp>

namespace replicator::detail {

// The nodes of a graph's placeholders, by ordinal.
inline std::vector<std::uint32_t> placeholders_of(const Graph& graph) {
  std::vector<std::uint32_t> nodes;
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
    if (const auto* placeholder = graph.node(i).get<Placeholder>()) {
      if (nodes.size() <= placeholder->ordinal) nodes.resize(placeholder->ordinal + 1);
      nodes[placeholder->ordinal] = i;
    }
  return nodes;
}

// all_reduce "fc.weight/gradient" at train.cpp:31
inline std::string describe_placeholder(const Node& node) {
  std::string text{node.kind()};
  if (!node.label.empty()) text += " \"" + node.label + "\"";
  return text + " at " + node.where.text();
}

}  // namespace replicator::detail
