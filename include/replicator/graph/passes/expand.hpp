// SPDX-License-Identifier: Apache-2.0
// The pass that expands composite operations.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/logical_device.hpp>
#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

// Replaces composite operations by their parts, until only those are left that `kind`, the kind of the job's devices, has a kernel
// for. Without a kind it replaces them all.
inline Graph expand(const Graph& graph, std::optional<DeviceKind> kind = {}) {
  const auto composite = [&](const Node& node) {
    const auto* compute = node.get<Compute>();
    return compute && compute->operation.has_expansion() && !(kind && has_kernel(compute->operation.slots(), *kind));
  };
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
  return expand(std::move(rewriter).finish(), kind);
}

}  // namespace replicator::detail::passes
