// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter over replicas that keeps T: replica b receives the reduction of block b of all replicas.
//
//   R = 3, D = 2      every replica: in = | b0 | b1 | b2 |
//                     rank 0: out = | T(b0) | T(b1) |     rank 1: out = | T(b2) |
//
// It is the first half of owner_computes, with one chunk for every replica. The root of block b lies on the rank of replica
// b; the other nodes of T lie where the fewest edges cross ranks.
//
// Steps: 1 if R = D, or replicas are dealt evenly on D = 2^k ranks; otherwise at most ceil(log2 D).
// Bytes in and out per rank: n X R / D. In the first two cases that is n R (D - 1) / D, the least possible.
//
// Source: as owner_computes.
#pragma once

#include <replicator/collectives/algorithms/crossing_tree.hpp>

namespace replicator::detail::collectives {

// The schedule reduces inside each group, in the order of T. Channel p belongs to the replica at place p. Throws BuildError where the groups are no
// partition of the replicas into equal sizes.
inline Schedule reduce_scatter(const ReplicaBlocks& blocks, const Groups& in = {}) {
  Schedule schedule = detail::empty_schedule("reduce_scatter", Kind::reduce_scatter, blocks, 1, blocks.replicas(), in);
  const Groups& groups = schedule.groups;
  for (int group = 0; group < groups.count(); ++group) {
    const CrossingTree tree{blocks, groups, group};
    for (const int replica : groups.members(group)) {
      const int rank = blocks.rank_of(replica);
      const Operand result{Buffer::output, rank, 0, replica - blocks.begin(rank), 1};
      detail::append_tree(schedule, tree, tree.owners(rank), groups.position(replica), groups.place(replica), result);
    }
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
