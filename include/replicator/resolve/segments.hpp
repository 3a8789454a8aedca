// SPDX-License-Identifier: Apache-2.0
// Segments: cuts the replicas' graphs at the collectives and transfers whose results they need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/graph/placeholder.hpp>
#include <replicator/resolve/resolution.hpp>

namespace replicator::detail {

// The segment of each node: the number of collectives and of transfers between devices on the longest path to it.
// Inputs from elsewhere thus come from an earlier segment. A collective's segment is at least earliest[ordinal].
inline std::vector<std::uint32_t> segments_of(const Graph& graph, std::span<const std::uint32_t> earliest) {
  std::vector<std::uint32_t> segment(graph.nodes().size());
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    for (const auto input : graph.node(i).inputs) {
      const auto& from = graph.node(input);
      const bool elsewhere = from.device != graph.node(i).device && !from.leaf();
      segment[i] = std::max(segment[i], segment[input.node] + (elsewhere || from.get<Placeholder>() ? 1 : 0));
    }
    if (const auto* placeholder = graph.node(i).get<Placeholder>()) segment[i] = std::max(segment[i], earliest[placeholder->ordinal]);
  }
  return segment;
}

// A bucket is waited for as a whole, so all replicas must do a collective in the same segment. This is the latest one
// that any of their graphs gives it. Graphs can differ in this, for example if thunks are dealt over the replicas.
// Returns the segments by ordinal. Throws BuildError if collectives wait for each other in a circle, which no correct pass causes.
inline std::vector<std::uint32_t> find_segments(std::vector<GraphClass>& classes, const ResolveOptions& options) {
  std::vector<std::uint32_t> latest(classes[0].collective.size()), before;
  do {
    do {
      before = latest;
      for (auto& one : classes) {
        one.segment = segments_of(one.graph, before);
        for (std::size_t k = 0; k < latest.size(); ++k) latest[k] = std::max(latest[k], one.segment[one.collective[k]]);
        if (!latest.empty() && *std::max_element(latest.begin(), latest.end()) > 2 * one.graph.nodes().size() + latest.size())
          throw BuildError{"collectives of this step wait for each other in a circle. This is an error of the library: please report it, with --dot FILE"};
      }
    } while (latest != before);
  } while (options.latest_of_processes && !options.latest_of_processes(latest));
  return latest;
}

}  // namespace replicator::detail
