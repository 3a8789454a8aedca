// SPDX-License-Identifier: Apache-2.0
// Every node is uniform (the same value on all replicas) or varying.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <replicator/graph/digest.hpp>
#include <replicator/graph/graph.hpp>

namespace replicator {

// Of the nodes of one graph.
struct Uniformity {
  std::vector<bool> uniform;
  std::vector<Digest> digest;  // what the node computes, from the leaves on: equal digests, equal uniform values
};

namespace detail {

inline bool is_uniform_leaf(const Graph& graph, const Node& node) {
  if (const auto* input = node.get<Input>()) return input->source == Input::Source::step;
  if (const auto* read = node.get<Read>()) return graph.variables()[read->variable].kind == VariableKind::mirrored;
  return true;  // a constant, or an operation without inputs
}

inline bool is_uniform_node(const Graph& graph, const Node& node, const std::vector<bool>& uniform) {
  if (const auto* placeholder = node.get<Placeholder>()) return placeholder->kind != CollectiveKind::reduce_scatter;
  if (const auto* compute = node.get<Compute>(); compute && compute->operation.varies()) return false;
  if (node.inputs.empty()) return is_uniform_leaf(graph, node);
  for (const auto input : node.inputs)
    if (!uniform[input.node]) return false;
  return true;
}

}  // namespace detail

inline Uniformity analyse_uniformity(const Graph& graph) {
  Uniformity result;
  for (const auto& node : graph.nodes()) {
    result.uniform.push_back(detail::is_uniform_node(graph, node, result.uniform));
    Hasher hasher;
    hash_node(hasher, graph, node);
    // A collective's result is the same everywhere whatever each replica gave.
    if (!node.get<Placeholder>())
      for (const auto input : node.inputs) {
        hasher.digest(result.digest[input.node]);
        hasher.word(input.output);
      }
    result.digest.push_back(hasher.result());
  }
  return result;
}

// What all the graphs compute, by digest.
inline std::set<Digest> common_digests(const std::vector<Uniformity>& all) {
  std::set<Digest> common(all[0].digest.begin(), all[0].digest.end());
  for (std::size_t g = 1; g < all.size(); ++g) {
    std::set<Digest> both;
    for (const auto& digest : all[g].digest)
      if (common.contains(digest)) both.insert(digest);
    common = std::move(both);
  }
  return common;
}

// A value that differs between the replicas' graphs (a constant that depends on the replica, say) is not uniform,
// though each graph alone cannot see it.
inline void restrict_to(const std::set<Digest>& common, std::vector<Uniformity>& all) {
  for (auto& one : all)
    for (std::size_t i = 0; i < one.uniform.size(); ++i)
      if (!common.contains(one.digest[i])) one.uniform[i] = false;
}

// Throws BuildError where a mirrored variable is given a value that varies.
inline void check_assignments(const Graph& graph, const Uniformity& uniformity) {
  for (const auto& node : graph.nodes()) {
    const auto* assign = node.get<Assign>();
    if (!assign || uniformity.uniform[node.inputs[0].node]) continue;
    const auto& variable = graph.variables()[assign->variable];
    if (variable.kind == VariableKind::replica_local) continue;
    throw BuildError{"\"" + variable.name + "\" is mirrored, but the value assigned at " + node.where.text() +
                     " differs between replicas: an all_reduce is missing, or make it replica_local"};
  }
}

}  // namespace replicator
