// SPDX-License-Identifier: Apache-2.0
// The pass that computes common subexpressions once.
#pragma once

#include <cstdint>
#include <unordered_map>

#include <replicator/graph/graph_digest.hpp>
#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

// Merges nodes that do the same to the same inputs. Placeholders, assignments and effects are never merged.
inline Graph merge_common(const Graph& graph) {
  Rewriter rewriter{graph};
  std::unordered_map<Digest, std::uint32_t, DigestHash> seen;
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    const auto& node = graph.node(i);
    if (node.get<Placeholder>() || node.get<Assign>() || (node.get<Compute>() && node.get<Compute>()->operation.effect())) {
      rewriter.copy(i);
      continue;
    }
    Hasher hasher;
    hash_node(hasher, graph, node);
    for (const auto input : node.inputs) {
      const Value value = rewriter(input);
      hasher.word((std::uint64_t{value.node} << 32) | value.output);
    }
    const auto [found, fresh] = seen.try_emplace(hasher.result(), 0);
    if (fresh) found->second = rewriter.copy(i);
    else rewriter.replace(i, found->second);
  }
  return std::move(rewriter).finish();
}

}  // namespace replicator::detail::passes
