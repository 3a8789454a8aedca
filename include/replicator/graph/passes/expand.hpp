// SPDX-License-Identifier: Apache-2.0
// The pass that expands composite operations.
#pragma once

#include <algorithm>
#include <vector>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/logical_device.hpp>
#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

// Replaces composite operations by their parts, until none is left.
inline Graph expand(const Graph& graph) {
  const auto composite = [](const Node& node) { return node.get<Compute>() && node.get<Compute>()->operation.has_expansion(); };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), composite)) return graph;
  Rewriter rewriter{graph};
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    const auto& node = graph.node(i);
    if (!composite(node)) {
      rewriter.copy(i);
      continue;
    }
    std::vector<AnyTensor> inputs;
    for (const auto input : node.inputs) inputs.push_back(rewriter.tensor(input));
    std::vector<Value> outputs;
    const LogicalDeviceScope there{rewriter.to(), node.device};
    const ScopedValue marks{rewriter.to().marks(), node.marks};
    for (const auto& output : node.get<Compute>()->operation.expand({rewriter.to(), inputs, node.where})) outputs.push_back(output.value());
    rewriter.replace(i, std::move(outputs));
  }
  return expand(std::move(rewriter).finish());
}

}  // namespace replicator::detail::passes
