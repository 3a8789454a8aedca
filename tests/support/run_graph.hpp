// SPDX-License-Identifier: Apache-2.0
// Runs a graph of computations by the CPU kernels that the test includes, without planner or runtime.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "evaluate.hpp"

namespace replicator::test {

// Runs Map and Reduce by the library's kernels, where evaluate() would interpret them.
inline std::vector<AnyArray> run_graph(const Graph& graph, const std::vector<AnyArray>& inputs, int threads = 1) {
  std::vector<std::vector<AnyArray>> values;
  for (const auto& node : graph.nodes()) {
    auto& outputs = values.emplace_back();
    if (const auto* input = node.get<Input>()) {
      outputs.push_back(inputs.at(input->index));
    } else if (const auto* constant = node.get<Constant>()) {
      outputs.push_back(*constant->array);
    } else {
      std::vector<Held> from;
      for (const auto input : node.inputs) from.push_back(held(values[input.node][input.output]));
      const auto& operation = node.get<Compute>()->operation;
      if (operation.alias()) {
        outputs.emplace_back(node.outputs[0]);
        std::memcpy(outputs[0].data(), from[0].data(), outputs[0].size_bytes());
        continue;
      }
      for (const auto& result : run_kernel(operation, std::move(from), node.outputs, {KernelTier::user, threads}))
        outputs.push_back(array_of(result));
    }
  }
  std::vector<AnyArray> results;
  for (const auto result : graph.results()) results.push_back(values[result.node][result.output]);
  return results;
}

}  // namespace replicator::test
