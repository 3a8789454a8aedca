// SPDX-License-Identifier: Apache-2.0
// All-reduce for few bytes: every rank reads the partials of all others and evaluates T itself.
//
//   R = 3, D = 2            0: [0,2) = p(0) (its own partial)         1: reads [0,2) from rank 0
//                           0: reads [2,3) from rank 1                1: out = [0,2) + [2,3)
//                           0: out = [0,2) + [2,3)
//
// Steps: 1.
// Bytes in and out per rank of n bytes: n for each partial of the others. That is n (D - 1) if R = D, or
// replicas are dealt evenly on D = 2^k ranks.
//
// Every rank does all additions: for small n only the latency counts.
// Source: the "flat" all-reduce of Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 2005, section 4 (all-gather, then reduce).
#pragma once

#include <cstddef>
#include <replicator/collectives/algorithms/crossing_tree.hpp>
#include <vector>

namespace replicator::detail::collectives {

// The schedule reduces inside each group, in the order of T, with one chunk and one channel. Throws BuildError where the groups are no partition of the
// replicas.
inline Schedule direct(const ReplicaBlocks& blocks, const Groups& in = {}) {
  Schedule schedule = detail::empty_schedule("direct", Kind::all_reduce, blocks, 1, 1, in);
  const Groups& groups = schedule.groups;
  for (int group = 0; group < groups.count(); ++group) {
    const CrossingTree tree{blocks, groups, group};
    for (const int rank : ranks_of(blocks, groups, group)) {
      const std::vector<int> owner(tree.vertices().size(), rank);
      const Operand result{Buffer::output, rank, 0, index_on(blocks, groups, group, rank), 1};
      detail::append_tree(schedule, tree, owner, 0, 0, result);
    }
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
