// SPDX-License-Identifier: Apache-2.0
// The pipeline of passes on one replica's graph. It does not depend on the placement: each graph is optimised by itself. It only
// depends on the kernels that the kind of device has. Processes compare that kind, the instruction set and the program.
#pragma once

#include <optional>

#include <replicator/graph/passes/common_subexpressions.hpp>
#include <replicator/graph/passes/dead_code.hpp>
#include <replicator/graph/passes/expand.hpp>
#include <replicator/graph/passes/fuse.hpp>
#include <replicator/graph/passes/hoist.hpp>
#include <replicator/graph/passes/late_rounding.hpp>
#include <replicator/graph/passes/merge_reduces.hpp>
#include <replicator/graph/passes/narrow.hpp>
#include <replicator/graph/passes/recompute.hpp>
#include <replicator/graph/passes/round_trips.hpp>

namespace replicator::detail {

// Computes the same values with operations that have kernels on this kind of device, each value once.
inline Graph simplify(const Graph& graph, std::optional<DeviceKind> kind = {}) {
  using namespace passes;
  const auto stored = [](const Graph& g) { return remove_dead_code(merge_common(drop_round_trips(narrow(g)))); };  // works on bfloat16 as stored
  return stored(round_late(stored(remove_dead_code(expand(graph, kind)))));
}

// Then reduces memory and memory traffic.
inline Graph condense(const Graph& graph, const passes::RecomputeOptions& options = {}, std::optional<DeviceKind> kind = {}) {
  return passes::fuse(passes::recompute(simplify(graph, kind), options));
}

// All passes on a replica's graph.
inline Graph optimise(const Graph& graph) { return passes::remove_dead_code(passes::merge_reduces(condense(graph))); }

}  // namespace replicator::detail
