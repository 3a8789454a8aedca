// SPDX-License-Identifier: Apache-2.0
// The segments of collectives, on which all replicas agree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/graph/segments_of.hpp>
#include <replicator/resolve/resolution.hpp>

namespace replicator::detail {

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
