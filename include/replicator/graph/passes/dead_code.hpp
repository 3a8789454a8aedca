// SPDX-License-Identifier: Apache-2.0
// The pass that removes unused nodes.
#pragma once

#include <cstdint>
#include <vector>

#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

// Keeps results, the last assignment of each variable, placeholders, effects, and all that these need. Placeholders stay
// because the replicas decide together whether a collective is needed.
inline Graph remove_dead_code(const Graph& graph) {
  const auto count = static_cast<std::uint32_t>(graph.nodes().size());
  std::vector<bool> live(count), assigned(graph.variables().size());
  for (const auto result : graph.results()) live[result.node] = true;
  for (std::uint32_t i = count; i-- > 0;) {
    const auto& node = graph.node(i);
    if (const auto* assign = node.get<Assign>(); assign && !assigned[assign->variable]) live[i] = assigned[assign->variable] = true;
    if (node.get<Placeholder>() || (node.get<Compute>() && node.get<Compute>()->operation.effect())) live[i] = true;
    if (live[i])
      for (const auto input : node.inputs) live[input.node] = true;
  }
  Rewriter rewriter{graph};
  for (std::uint32_t i = 0; i < count; ++i)
    if (live[i]) rewriter.copy(i);
  return std::move(rewriter).finish();
}

}  // namespace replicator::detail::passes
