// SPDX-License-Identifier: Apache-2.0
// Digests of nodes and graphs. Common subexpressions, equal graphs and fingerprints are found with them.
#pragma once

#include <variant>
#include <vector>

#include <replicator/core/attributes.hpp>
#include <replicator/graph/graph.hpp>

namespace replicator::detail {

// Hashes what a node computes: its alternative, attributes and output types, without inputs and location. A variable counts
// by its name.
inline void hash_node(Hasher& hasher, const Graph& graph, const Node& node) {
  hasher.word(node.what.index());
  if (const auto* input = node.get<Input>()) {
    hasher.word(static_cast<std::uint64_t>(input->source));
    hasher.word(input->index);
  } else if (const auto* constant = node.get<Constant>()) {
    hasher.digest(constant->digest);
  } else if (const auto* read = node.get<Read>()) {
    hasher.text(graph.variables()[read->variable].name);
  } else if (const auto* assign = node.get<Assign>()) {
    hasher.text(graph.variables()[assign->variable].name);
  } else if (const auto* placeholder = node.get<Placeholder>()) {
    AttributeHasher visitor{hasher};
    placeholder->describe(visitor);
  } else if (const auto* compute = node.get<Compute>()) {
    hasher.digest(compute->operation.digest());
  }
  for (const auto& output : node.outputs) {
    hasher.word(static_cast<std::uint64_t>(output.dtype));
    for (const auto extent : output.shape) hasher.word(static_cast<std::uint64_t>(extent));
  }
}

// The digest of a whole graph with its devices. The source lines do not count, so equal graphs of different replicas have
// equal digests.
template <class = void>
Digest digest_of(const Graph& graph) {
  Hasher hasher;
  for (const auto& node : graph.nodes()) {
    hash_node(hasher, graph, node);
    hasher.word(static_cast<std::uint64_t>(node.device));
    for (const auto input : node.inputs) hasher.word((std::uint64_t{input.node} << 32) | input.output);
  }
  for (const auto result : graph.results()) hasher.word((std::uint64_t{result.node} << 32) | result.output);
  for (const auto& variable : graph.variables()) {
    hasher.text(variable.name);
    hasher.word(static_cast<std::uint64_t>(variable.kind));
    hasher.word(static_cast<std::uint64_t>(variable.trainable));
  }
  return hasher.result();
}

}  // namespace replicator::detail
