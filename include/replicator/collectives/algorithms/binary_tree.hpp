// SPDX-License-Identifier: Apache-2.0
// All-reduce along T itself: up to the root, then down again. Pieces are pipelined through the tree.
//
//   R = D = 4             [0,4) on 1            up: 0 computes [0,2), 2 computes [2,4), 1 computes the root
//                        /          \           down: 0 and 2 copy from 1, 3 copies from 2
//                [0,2) on 0      [2,4) on 2
//                 /     \         /     \       .
//                0       1       2       3
//
// The node that divides at replica m is computed on the rank of replica m - 1. Nodes divide at different replicas. So where
// T divides at the borders of ranks, no rank computes more than one node. That holds for R = D, and for D = 2^k with
// replicas dealt evenly.
//
// Steps: the depth of T above the ranks, and at most as many down. That is 2 log2 D for replicas dealt evenly on 2^k ranks.
// Bytes per rank of n bytes, whatever D is: at most 3 n in and 4 n out where T divides at the borders of ranks. Otherwise
// 4 n in and 5 n out. With many pieces this bounds the time.
//
// Source: the two-way trees of Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4, and of NCCL. Here the ranks are
// numbered in order, so that the trees are T.
#pragma once

#include <cstddef>
#include <replicator/collectives/algorithms/crossing_tree.hpp>
#include <vector>

namespace replicator::detail::collectives {

// Deterministic; one chunk, one channel.
inline Schedule binary_tree(const ReplicaBlocks& blocks) {
  Schedule schedule = detail::empty_schedule("binary_tree", Kind::all_reduce, blocks, 1, 1);
  const CrossingTree tree{blocks};
  const auto& vertices = tree.vertices();
  std::vector<int> owner;
  for (const CrossingTree::Vertex& vertex : vertices)
    owner.push_back(vertex.partial() ? vertex.rank : blocks.rank_of(vertex.node.middle() - 1));
  const Operand result{Buffer::output, owner.back(), 0, 0, 1};
  std::vector<detail::Placed> have(static_cast<std::size_t>(blocks.ranks()));
  have[static_cast<std::size_t>(owner.back())] = detail::append_tree(schedule, tree, owner, 0, 0, result);
  for (std::size_t v = vertices.size(); v-- > 0;) {
    if (vertices[v].partial()) continue;
    const detail::Placed& above = have[static_cast<std::size_t>(owner[v])];
    for (const int child : {vertices[v].left, vertices[v].right}) {
      const int rank = owner[static_cast<std::size_t>(child)];
      detail::Placed& below = have[static_cast<std::size_t>(rank)];
      const Operand dst{Buffer::output, rank, 0, 0, 1};
      if (!below.made)
        below = detail::append(schedule, rank, 0, {Action::copy, dst, above.where, {}, -1, {}, false}, {above});
    }
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
