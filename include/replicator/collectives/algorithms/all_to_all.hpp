// SPDX-License-Identifier: Apache-2.0
// All-to-all: every replica's input has a block for each replica. Replica r receives block r of all inputs, in their order.
//
//   R = 3, D = 2      in of replica i: | i0 | i1 | i2 |
//                     rank 0: out = | 00 10 20 | 01 11 21 |     rank 1: out = | 02 12 22 |
//
// Every rank copies each block for one of its replicas from the rank that holds the block. It begins with its own, then the
// rank behind it, and so on. So the ranks do not all read the same rank at once.
//
// Steps: 1.
// Bytes in and out per rank: n m (R - m) / R, for m replicas of its own and inputs of n bytes. That is the least possible.
//
// Source: the direct exchange; see Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", IEEE TPDS 1997.
#pragma once

#include <replicator/collectives/build.hpp>

namespace replicator::detail::collectives {

// All-to-all inside each group. Channel k reads the k-th rank behind the reader. Throws BuildError where the groups are no
// partition of the replicas into equal sizes.
inline Schedule all_to_all(const ReplicaBlocks& blocks, const Groups& in = {}) {
  const int ranks = blocks.ranks();
  Schedule schedule = detail::empty_schedule("all_to_all", Kind::all_to_all, blocks, 1, ranks, in);
  const Groups& groups = schedule.groups;
  for (int rank = 0; rank < ranks; ++rank)
    for (int distance = 0; distance < ranks; ++distance) {
      const int source = (rank + distance) % ranks;
      for (int to = blocks.begin(rank); to < blocks.end(rank); ++to)
        for (const int from : groups.members(groups.group_of(to))) {
          if (from < blocks.begin(source) || from >= blocks.end(source)) continue;
          const Operand left{Buffer::input, source, from - blocks.begin(source), groups.position(to), 1};
          const Operand dst{Buffer::output, rank, 0, (to - blocks.begin(rank)) * groups.size(0) + groups.position(from), 1};
          detail::append(schedule, rank, distance, {Action::copy, dst, left, {}, -1, {}, false}, {});
        }
    }
  return schedule;
}

}  // namespace replicator::detail::collectives
