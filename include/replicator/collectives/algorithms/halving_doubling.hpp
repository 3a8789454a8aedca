// SPDX-License-Identifier: Apache-2.0
// All-reduce by recursive halving and doubling; the nearest partner comes first.
//
//   D = 4              reduce-scatter                        all-gather
//                      0 <-> 1   2 <-> 3   half each         0 <-> 2   1 <-> 3
//                      0 <-> 2   1 <-> 3   a quarter each    0 <-> 1   2 <-> 3
//
//   D = 5, p = 4       first rank 1 gives all it has to rank 0, then 0, 2, 3, 4 do the above, then rank 1 copies the result
//
// p is the largest power of two up to D. The D - p extra ranks are paired with their left neighbours. T over the ranks
// gives the pairs: its p nodes at depth log2 p have one or two ranks each. So the additions are T's where R = D, or D = 2^k
// with replicas dealt evenly. Otherwise the schedule is `any_order`.
//
// Steps: 2 log2 p, and 2 more where D > p.
// Bytes in and out per rank of n bytes: 2 n (D - 1) / D on average. Where D > p, the left rank of a pair has n more than
// 2 n (p - 1) / p.
//
// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004. The extra ranks are folded as in
// Thakur, Rabenseifner, Gropp, IJHPCA 2005, which takes the first ranks instead.
#pragma once

#include <replicator/collectives/algorithms/grid.hpp>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

namespace detail {

// Collects the nodes of T that lie `depth` below `node`.
inline void collect_level(TreeNode node, int depth, std::vector<TreeNode>& found) {
  if (depth == 0) {
    found.push_back(node);
  } else {
    collect_level(node.left(), depth - 1, found);
    collect_level(node.right(), depth - 1, found);
  }
}

}  // namespace detail

// Uses channel 0 only, and p chunks.
inline Schedule halving_doubling(const ReplicaBlocks& blocks) {
  std::vector<int> dimensions;
  int p = 1;
  for (; 2 * p <= blocks.ranks(); p *= 2) dimensions.push_back(2);
  Schedule schedule = detail::empty_schedule("halving_doubling", Kind::all_reduce, blocks, p, 1);
  std::vector<TreeNode> teams;  // of one or two ranks
  detail::collect_level({0, blocks.ranks()}, static_cast<int>(dimensions.size()), teams);
  std::vector<detail::Member> members;
  for (const TreeNode& team : teams) {
    const int rank = team.begin;
    detail::Member member = detail::local_member(schedule, rank);
    if (!team.leaf()) {
      const detail::Member folded = detail::local_member(schedule, rank + 1);
      member.value = detail::append_sum(schedule, member, folded, rank, {Buffer::output, rank, 0, 0, p}, false);
      member.node.end = folded.node.end;
    }
    members.push_back(member);
  }
  const std::vector<detail::Placed> results = detail::Grid{schedule, members, dimensions}.all_reduce();
  for (std::size_t t = 0; t < teams.size(); ++t) {
    if (teams[t].leaf()) continue;
    const Operand dst{Buffer::output, teams[t].begin + 1, 0, 0, p};
    detail::append(schedule, dst.rank, 0, {Action::copy, dst, results[t].where, {}, -1, {}, false}, {results[t]});
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
