// SPDX-License-Identifier: Apache-2.0
// "Owner computes": the all-reduce that keeps T for any number of ranks.
//
// Every block is cut into D chunks. For each chunk a dynamic programme gives every node of T that spans ranks to one rank.
// It minimises X, the number of tree edges between ranks; the root of chunk c lies on rank c. A rank computes its nodes
// from the children, on whichever rank they are. In the end every rank copies the root of chunk c from rank c.
//
//   R = 4, D = 4, chunk 1            1: [0,2) = p0 + p1       reads p0 from rank 0
//                                    1: [2,4) = p2 + p3       reads p2, p3 (X = 3; ties stay with the parent's owner)
//                                    1: [0,4) = [0,2) + [2,4)
//                                    0, 2, 3: copy chunk 1 from rank 1
//
// Steps: 1 of loads if R = D, or replicas are dealt evenly on D = 2^k ranks; otherwise at most ceil(log2 D). And 1 of copies.
// Bytes in and out per rank of n bytes: n (X + D - 1) / D. In the first two cases X = D - 1: the ring's 2 n (D - 1) / D.
//
// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, for the bandwidth bound and the form
// reduce-scatter + all-gather. Giving tree nodes to owners is the bottom-up tree cut of compiler textbooks.
#pragma once

#include <cstddef>
#include <replicator/collectives/algorithms/crossing_tree.hpp>
#include <vector>

namespace replicator::detail::collectives {

namespace detail {

// Appends one chunk of one group: T up to `owner`, then a copy for each of the group's other ranks.
inline void append_owned_chunk(Schedule& schedule, const CrossingTree& tree, int group, int chunk, int owner, const std::vector<int>& ranks) {
  const int channel = group * schedule.chunks + chunk;
  const auto output = [&](int rank) {
    return Operand{Buffer::output, rank, 0, index_on(schedule.blocks, schedule.groups, group, rank) * schedule.chunks + chunk, 1};
  };
  const Placed root = append_tree(schedule, tree, tree.owners(owner), chunk, channel, output(owner));
  for (const int rank : ranks)
    if (rank != owner) append(schedule, rank, channel, {Action::copy, output(rank), root.where, {}, -1, {}, false}, {root});
}

}  // namespace detail

// The schedule reduces inside each group, in the order of T. A group's chunks are dealt to the ranks that hold its members. Channel g * chunks + c
// belongs to chunk c of group g. Throws BuildError where the groups are no partition of the replicas.
inline Schedule owner_computes(const ReplicaBlocks& blocks, const Groups& in = {}) {
  const Groups groups = detail::require_groups(Kind::all_reduce, blocks, in);
  const int chunks = most_ranks(blocks, groups);
  Schedule schedule = detail::empty_schedule("owner_computes", Kind::all_reduce, blocks, chunks, chunks * groups.count(), groups);
  for (int group = 0; group < groups.count(); ++group) {
    const CrossingTree tree{blocks, groups, group};
    const std::vector<int> ranks = ranks_of(blocks, groups, group);
    for (int chunk = 0; chunk < chunks; ++chunk)
      detail::append_owned_chunk(schedule, tree, group, chunk, ranks[static_cast<std::size_t>(chunk) % ranks.size()], ranks);
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
