// SPDX-License-Identifier: Apache-2.0
// The requests for kernels that planning a graph would make.
#pragma once

#include <vector>

#include <replicator/graph/graph.hpp>
#include <replicator/graph/kernel.hpp>

namespace replicator::test {

using namespace replicator::detail;

inline std::vector<Layout> row_major(const std::vector<TensorType>& inputs) { return std::vector<Layout>(inputs.size()); }

// Calls f(node, request) for each operation of the graph. `offered(types)`: the layouts in which a node's inputs were made.
template <class F, class Offered = decltype(row_major)>
void for_each_request(const Graph& graph, F f, Offered offered = row_major) {
  for (const auto& node : graph.nodes()) {
    const auto* compute = node.get<Compute>();
    if (!compute) continue;
    std::vector<TensorType> inputs;
    for (const auto input : node.inputs) inputs.push_back(graph.type(input));
    const std::vector<Layout> layouts = offered(inputs);
    f(node, KernelRequest{compute->operation, inputs, node.outputs, layouts});
  }
}

}  // namespace replicator::test
