// SPDX-License-Identifier: Apache-2.0
// The pass that starts collectives as soon as their inputs exist.
#pragma once

#include <cstdint>
#include <utility>

#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

// Moves every placeholder right behind the node that makes its input. A collective then starts while the rest of the
// backward pass runs, although the step function asks for it only after all gradients. All other nodes keep their order.
inline Graph hoist_placeholders(const Graph& graph) {
  const auto users = users_of(graph);
  Rewriter rewriter{graph};
  const auto hoisted = [&](std::uint32_t node) { return graph.node(node).get<Placeholder>() && rewriter.done(node); };
  const auto copy = [&](std::uint32_t node, const auto& again) -> void {
    rewriter.copy(node);
    for (const auto user : users[node])
      if (graph.node(user).get<Placeholder>() && !hoisted(user)) again(user, again);
  };
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
    if (!hoisted(i)) copy(i, copy);
  return std::move(rewriter).finish();
}

}  // namespace replicator::detail::passes
