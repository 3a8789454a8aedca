// SPDX-License-Identifier: Apache-2.0
// All-gather over replicas: every rank gets the inputs of all replicas, one after the other.
//
//   R = 3, D = 2      rank 0: in0 in1   rank 1: in2        both: out = | in0 | in1 | in2 |
//
// Every rank copies each replica's input from the rank that holds it. It begins with its own, then the rank behind it, and
// so on. So the ranks do not all read the same rank at once.
//
// Steps: 1.
// Bytes in per rank: n (R - m) for m replicas of its own, the least possible. Out: n m (D - 1).
//
// Source: the "direct" all-gather; see Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory,
// practice, and experience", CCPE 2007.
#pragma once

#include <replicator/collectives/build.hpp>

namespace replicator::detail::collectives {

// All-gather inside each group. Channel k reads the k-th rank behind the reader. Throws BuildError where the groups are no
// partition of the replicas into equal sizes.
inline Schedule all_gather(const ReplicaBlocks& blocks, const Groups& in = {}) {
  const int ranks = blocks.ranks();
  Schedule schedule = detail::empty_schedule("all_gather", Kind::all_gather, blocks, 1, ranks, in);
  const Groups& groups = schedule.groups;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int distance = 0; distance < ranks; ++distance) {
      const int source = (rank + distance) % ranks;
      for (int replica = blocks.begin(source); replica < blocks.end(source); ++replica) {
        const int group = groups.group_of(replica);
        const TreeNode here = places_on(blocks, groups, group, rank);
        if (here.begin == here.end) continue;
        const int block = index_on(blocks, groups, group, rank) * groups.size(group) + groups.position(replica);
        const Operand from{Buffer::input, source, replica - blocks.begin(source), 0, 1};
        const Operand to{Buffer::output, rank, 0, block, 1};
        detail::append(schedule, rank, distance, {Action::copy, to, from, {}, -1, {}, false}, {});
      }
    }
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
