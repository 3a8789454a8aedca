// SPDX-License-Identifier: Apache-2.0
// Broadcast from one replica to all ranks: scatter, then all-gather.
//
//   D = 3, root on rank 0       in | c0 | c1 | c2 |
//   scatter                     rank 1 copies c1 from the root, rank 2 copies c2
//   all-gather                  rank 1: c0 from 0, c2 from 2        rank 2: c0 from 0, c1 from 1
//
// Steps: 2.
// Bytes in per rank: n. Out: n (D - 1) / D, and twice that at the root.
//
// With `flat` every rank reads the root, for few bytes: one step, with n (D - 1) out at the root.
// Source: van de Geijn's scatter-allgather; Barnett et al., "Building a high-performance collective communication library",
// SC 1994.
#pragma once

#include <cstddef>
#include <replicator/collectives/build.hpp>
#include <replicator/core/replicas_text.hpp>
#include <string>
#include <vector>

namespace replicator::detail::collectives {

namespace detail {

// Appends the broadcast from the root of one group to its ranks. Chunk c goes through the c-th of these ranks, unless
// `flat`.
inline void append_group_broadcast(Schedule& schedule, int group, const std::vector<int>& ranks, bool flat) {
  const ReplicaBlocks& blocks = schedule.blocks;
  const int root = schedule.groups.members(group)[static_cast<std::size_t>(schedule.root)];
  const int source = blocks.rank_of(root), first_channel = group * schedule.chunks;
  const Operand input{Buffer::input, source, root - blocks.begin(source), 0, schedule.chunks};
  const auto output = [&](int rank, int chunk, int count) {
    return Operand{Buffer::output, rank, 0, index_on(blocks, schedule.groups, group, rank) * schedule.chunks + chunk, count};
  };
  append(schedule, source, first_channel, {Action::copy, output(source, 0, schedule.chunks), input, {}, -1, {}, false}, {});
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    const int relay = flat ? source : ranks[static_cast<std::size_t>(chunk) % ranks.size()];
    Placed from{{Buffer::input, source, input.index, chunk, 1}, false, {}};
    const Operand root_chunk = from.where;
    if (relay != source)
      from = append(schedule, relay, first_channel + chunk, {Action::copy, output(relay, chunk, 1), root_chunk, {}, -1, {}, false}, {});
    for (const int rank : ranks)
      if (rank != source && rank != relay)
        append(schedule, rank, first_channel + chunk, {Action::copy, output(rank, chunk, 1), from.where, {}, -1, {}, false}, {from});
  }
}

}  // namespace detail

// Broadcast inside each group. `root` is a position in each group: a replica, where there are no groups. Chunk c of group g
// has the channel g * chunks + c. The root's own copy is in the group's first channel. Throws BuildError where the groups
// are no partition of the replicas, or where a group has no such root.
inline Schedule broadcast(const ReplicaBlocks& blocks, int root, bool flat = false, const Groups& in = {}) {
  const Groups groups = detail::require_groups(Kind::broadcast, blocks, in);
  const int chunks = flat ? 1 : most_ranks(blocks, groups);
  Schedule schedule = detail::empty_schedule(flat ? "flat_broadcast" : "broadcast", Kind::broadcast, blocks, chunks, chunks * groups.count(), groups);
  schedule.root = root;
  for (int group = 0; group < groups.count(); ++group) {
    if (root < 0 || root >= groups.size(group))
      throw BuildError{"broadcast from replica " + std::to_string(root) + (groups.everybody() ? "" : " of each group") +
                       ": there " + only_replicas_text(groups.size(group))};
    detail::append_group_broadcast(schedule, group, ranks_of(blocks, groups, group), flat);
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
