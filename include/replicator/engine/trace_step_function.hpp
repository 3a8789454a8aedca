// SPDX-License-Identifier: Apache-2.0
// Traces the step function of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <replicator/engine/host.hpp>
#include <replicator/engine/replica_inputs.hpp>
#include <replicator/graph/graph.hpp>
#include <replicator/replicate/step_driver.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::detail {

// Calls the step function once for each replica of this process, with tensors of the shapes of `elements`. Returns the
// graph of each call.
inline std::vector<Graph> trace_replicas(const Host& host, std::span<const ReplicaInputs::Element> elements, const Trace& trace) {
  std::vector<Graph> graphs;
  graphs.reserve(elements.size());
  for (std::size_t r = 0; r < elements.size(); ++r) {
    auto& graph = graphs.emplace_back(host.placement().begin() + static_cast<int>(r), host.deployment().replicas, host.deployment().logical_devices);
    std::vector<AnyTensor> tensors;
    for (std::uint32_t i = 0; i < elements[r].size(); ++i)
      tensors.push_back(graph.tensor(graph.add({Input{Input::Source::element, i}, {}, {elements[r][i].type()}, {}, "input" + std::to_string(i)})));
    ReplicaContext context{graph};
    trace(context, tensors);
  }
  return graphs;
}

}  // namespace replicator::detail
