// SPDX-License-Identifier: Apache-2.0
// Uniform nodes. What such a node computes depends on nothing that differs between replicas, so every replica with an equal
// node gets the same value.
#pragma once

#include <cstdint>
#include <vector>

#include <replicator/graph/graph.hpp>
#include <replicator/graph/placeholder.hpp>

namespace replicator::detail {

inline bool is_uniform_leaf(const Graph& graph, const Node& node) {
  if (const auto* input = node.get<Input>()) return input->source == Input::Source::step || input->source == Input::Source::arrival;
  if (const auto* read = node.get<Read>()) return graph.variables()[read->variable].kind == VariableKind::mirrored;
  return true;  // a constant, or an operation without inputs
}

// The results of different groups differ.
inline bool gives_all_the_same(const Placeholder& placeholder) {
  return placeholder.groups.everybody() && placeholder.kind != CollectiveKind::reduce_scatter && placeholder.kind != CollectiveKind::all_to_all;
}

inline bool is_uniform_node(const Graph& graph, const Node& node, const std::vector<bool>& uniform) {
  if (const auto* placeholder = node.get<Placeholder>()) return gives_all_the_same(*placeholder);
  if (const auto* compute = node.get<Compute>(); compute && compute->operation.varies()) return false;
  // Each replica has its own variable to write, whatever the value.
  if (const auto* assign = node.get<Assign>(); assign && graph.variables()[assign->variable].kind == VariableKind::replica_local) return false;
  if (node.inputs.empty()) return is_uniform_leaf(graph, node);
  for (const auto input : node.inputs)
    if (!uniform[input.node]) return false;
  return true;
}

// For each node of the graph, whether it is uniform.
inline std::vector<bool> uniform_nodes(const Graph& graph) {
  std::vector<bool> uniform;
  for (const auto& node : graph.nodes()) uniform.push_back(is_uniform_node(graph, node, uniform));
  return uniform;
}

}  // namespace replicator::detail
