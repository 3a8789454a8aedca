// SPDX-License-Identifier: Apache-2.0
// The simplest all-reduce, as a baseline for measurements: all ranks send to rank 0, which adds and sends the result back.
//
//   D = 3      1 ----> 0 <---- 2       0: T over all partials       1 <---- 0 ----> 2
//
// Steps: 2.
// Bytes at rank 0: n (D - 1) in if R = D, or replicas are dealt evenly on D = 2^k ranks, and n (D - 1) out. Other ranks: n in, n out.
//
// The time grows with the number of ranks.
// Source: the baseline of Gibiansky, "Bringing HPC techniques to deep learning", baidu-allreduce, 2017.
#pragma once

#include <replicator/collectives/algorithms/crossing_tree.hpp>
#include <vector>

namespace replicator::detail::collectives {

// Deterministic; one chunk, one channel.
inline Schedule naive(const ReplicaBlocks& blocks) {
  Schedule schedule = detail::empty_schedule("naive", Kind::all_reduce, blocks, 1, 1);
  const CrossingTree tree{blocks};
  const std::vector<int> owner(tree.vertices().size(), 0);
  const detail::Placed root = detail::append_tree(schedule, tree, owner, 0, 0, {Buffer::output, 0, 0, 0, 1});
  for (int rank = 1; rank < blocks.ranks(); ++rank) {
    const Operand dst{Buffer::output, rank, 0, 0, 1};
    detail::append(schedule, rank, 0, {Action::copy, dst, root.where, {}, -1, {}, false}, {root});
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
