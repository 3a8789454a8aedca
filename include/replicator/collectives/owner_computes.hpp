// SPDX-License-Identifier: Apache-2.0
// All-reduce that keeps T for any number of ranks: "owner computes".
//
// Every block is cut into D chunks. Per chunk, every node of T that spans ranks is given to one rank by a dynamic
// programme so that as few edges of the tree as possible cross ranks (X); the root of chunk c lies on rank c. A rank
// computes its nodes from the children, wherever they are, and in the end everyone copies the root of chunk c from c.
//
//   R = 4, D = 4, chunk 1            1: [0,2) = p0 + p1       reads p0 from rank 0
//                                    1: [2,4) = p2 + p3       reads p2, p3 (X = 3; ties stay with the parent's owner)
//                                    1: [0,4) = [0,2) + [2,4)
//                                    0, 2, 3: copy chunk 1 from rank 1
//
// Steps: 1 of loads where R/D is a power of two, at most ceil(log2 D) else, and 1 of copies.
// Bytes in and out per rank of n bytes: n (X + D - 1) / D. For D = 2^k that is X = D - 1: the ring's 2 n (D - 1) / D.
// Source: the bandwidth bound and the reduce-scatter + all-gather form are Rabenseifner's ("Optimization of collective
// reduction operations", ICCS 2004); giving tree nodes to owners is the bottom-up tree cut of any compiler's textbook.
#pragma once

#include <replicator/collectives/crossing_tree.hpp>

namespace replicator::collectives {

// The deterministic all-reduce. Channel c belongs to chunk c.
inline Schedule owner_computes(const ReplicaBlocks& blocks) {
  const int ranks = blocks.ranks();
  Schedule schedule = detail::empty_schedule("owner_computes", Kind::all_reduce, blocks, ranks, ranks);
  const CrossingTree tree{blocks};
  for (int chunk = 0; chunk < ranks; ++chunk) {
    const detail::Placed root =
        detail::append_tree(schedule, tree, tree.owners(chunk), chunk, chunk, {Buffer::output, chunk, 0, chunk, 1});
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == chunk) continue;
      const Operand dst{Buffer::output, rank, 0, chunk, 1};
      detail::append(schedule, rank, chunk, {Action::copy, dst, root.where, {}, -1, {}, false}, {root});
    }
  }
  return schedule;
}

}  // namespace replicator::collectives
