// SPDX-License-Identifier: Apache-2.0
// The all-reduce algorithms by name.
#pragma once

#include <replicator/collectives/algorithms/binary_tree.hpp>
#include <replicator/collectives/algorithms/direct.hpp>
#include <replicator/collectives/algorithms/halving_doubling.hpp>
#include <replicator/collectives/algorithms/hierarchical.hpp>
#include <replicator/collectives/algorithms/naive.hpp>
#include <replicator/collectives/algorithms/owner_computes.hpp>
#include <replicator/collectives/algorithms/ring.hpp>
#include <replicator/collectives/all_reduce_preference.hpp>
#include <string>
#include <vector>

namespace replicator::detail::collectives {

// Throws BuildError for "auto", unknown names, and dimensions that do not fit the ranks.
inline Schedule all_reduce_by_name(const AllReducePreference& wanted, const ReplicaBlocks& blocks) {
  if (wanted.name == "owner_computes") return owner_computes(blocks);
  if (wanted.name == "direct") return direct(blocks);
  if (wanted.name == "ring") return ring(blocks);
  if (wanted.name == "halving_doubling") return halving_doubling(blocks);
  if (wanted.name == "binary_tree") return binary_tree(blocks);
  if (wanted.name == "naive") return naive(blocks);
  if (wanted.name == "hierarchical")
    return hierarchical(blocks, wanted.dimensions.empty() ? std::vector<int>{blocks.ranks()} : wanted.dimensions);
  throw BuildError{"there is no all_reduce by the name \"" + wanted.name + "\""};
}

}  // namespace replicator::detail::collectives
