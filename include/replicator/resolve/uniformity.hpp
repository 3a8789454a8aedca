// SPDX-License-Identifier: Apache-2.0
// Uniformity: which nodes of a graph are uniform (the same value on all replicas). The others vary.
#pragma once

#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/graph/graph.hpp>

namespace replicator::detail {

// The analysis of one graph.
struct Uniformity {
  std::vector<bool> uniform;
  // By node, for each output: a digest of the whole computation, from the leaves on. For an assignment: of its effect.
  // Uniform values with equal digests are equal. Fusion does not change a digest.
  std::vector<std::vector<Digest>> digests;
  // For each result, a digest of its index and value. A result is uniform if it is the same uniform value on all
  // replicas.
  std::vector<Digest> result_digests;
  std::vector<bool> uniform_results;

  const Digest& digest(Value value) const { return digests[value.node][value.output]; }
};

}  // namespace replicator::detail
