// SPDX-License-Identifier: Apache-2.0
// The names of nodes in texts for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <replicator/graph/graph.hpp>

namespace replicator::detail {

// "convolution#17", or with a label "read#3 conv1.weight". The number is the index in this graph.
inline std::string node_text(const Graph& graph, std::uint32_t index) {
  const auto& node = graph.node(index);
  return std::string{node.kind()} + "#" + std::to_string(index) + (node.label.empty() ? "" : " " + node.label);
}

// The same with the user's source line, if known: "convolution#17 at resnet.cpp:31".
inline std::string located_text(const Graph& graph, std::uint32_t index) {
  const auto& where = graph.node(index).where;
  return node_text(graph, index) + (*where.file ? " at " + where.text() : "");
}

// The formula of the node in at most `length` characters; empty where its operation gives none.
inline std::string formula_of(const Node& node, std::size_t length = 80) {
  const auto* compute = node.get<Compute>();
  return compute ? compute->operation.formula(length) : std::string{};
}

}  // namespace replicator::detail
