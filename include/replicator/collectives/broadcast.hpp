// SPDX-License-Identifier: Apache-2.0
// Broadcast from one replica to all ranks: scatter, then all-gather.
//
//   D = 3, root on rank 0       in | c0 | c1 | c2 |
//   scatter                     rank 1 copies c1 from the root, rank 2 copies c2
//   all-gather                  rank 1: c0 from 0, c2 from 2        rank 2: c0 from 0, c1 from 1
//
// Steps: 2. Bytes in per rank: n; out: n (D - 1) / D, and twice that at the root. (Everyone reading the root would be
// one step with n (D - 1) out at the root: `flat`, for few bytes.)
// Source: van de Geijn's scatter-allgather; Barnett et al., "Building a high-performance collective communication
// library", SC 1994.
#pragma once

#include <cstddef>
#include <replicator/collectives/build.hpp>
#include <vector>

namespace replicator::collectives {

// `root` is a replica, `flat` as said above. Channel c belongs to chunk c; the root's own copy is in channel 0.
inline Schedule broadcast(const ReplicaBlocks& blocks, int root, bool flat = false) {
  if (root < 0 || root >= blocks.replicas())
    throw BuildError{"broadcast from replica " + std::to_string(root) + ": there are only the replicas 0 to " +
                     std::to_string(blocks.replicas() - 1)};
  const int ranks = blocks.ranks();
  const int chunks = flat ? 1 : ranks;
  Schedule schedule =
      detail::empty_schedule(flat ? "flat_broadcast" : "broadcast", Kind::broadcast, blocks, chunks, chunks);
  schedule.root = root;
  const int source = blocks.rank_of(root);
  const Operand input{Buffer::input, source, root - blocks.begin(source), 0, 1};
  Operand whole = input;
  whole.count = chunks;
  const Operand own{Buffer::output, source, 0, 0, chunks};
  detail::append(schedule, source, 0, {Action::copy, own, whole, {}, -1, {}, false}, {});
  for (int chunk = 0; chunk < chunks; ++chunk) {
    detail::Placed from{input, false, {}};
    from.where.chunk = chunk;
    if (!flat && chunk != source) {
      const Operand dst{Buffer::output, chunk, 0, chunk, 1};
      from = detail::append(schedule, chunk, chunk, {Action::copy, dst, from.where, {}, -1, {}, false}, {});
    }
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == source || (!flat && rank == chunk)) continue;
      const Operand dst{Buffer::output, rank, 0, chunk, 1};
      detail::append(schedule, rank, chunk, {Action::copy, dst, from.where, {}, -1, {}, false}, {from});
    }
  }
  return schedule;
}

}  // namespace replicator::collectives
