// SPDX-License-Identifier: Apache-2.0
// All-reduce around a ring. It adds in the order of the ring, which differs from T for three ranks or more: `any_order`.
//
//   D = 3, chunk 0        rank 1 ----> rank 2 ----> rank 0 ----> rank 1 ----> rank 2
//                         v1           v1 + v2      (v1+v2)+v0    copy         copy
//                         `------- scatter-reduce ------'`-------- all-gather ----'
//
// v_r is the sum of the partials of rank r. Chunk c starts at rank c + 1 and is complete at rank c.
//
// Steps: 2 (D - 1).
// Bytes in and out per rank of n bytes: 2 n (D - 1) / D, the least possible.
//
// Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009; made popular
// by Gibiansky, baidu-allreduce, 2017.
#pragma once

#include <cstddef>
#include <replicator/collectives/build.hpp>
#include <utility>

namespace replicator::detail::collectives {

namespace detail {

// The sum of the rank's own partials of a chunk, left to right.
inline Placed append_local_sum(Schedule& schedule, int rank, int chunk) {
  const int partials = static_cast<int>(schedule.inputs(rank).size());
  Placed sum{{Buffer::input, rank, 0, chunk, 1}, false, {}};
  for (int p = 1; p < partials; ++p) {
    const Operand right{Buffer::input, rank, p, chunk, 1};
    const Operand dst = scratch_slots(schedule, rank, chunk, 1);
    sum = append(schedule, rank, chunk, {Action::reduce, dst, sum.where, right, -1, {}, false}, {sum});
  }
  return sum;
}

}  // namespace detail

// Channel c belongs to chunk c.
inline Schedule ring(const ReplicaBlocks& blocks) {
  const int ranks = blocks.ranks();
  Schedule schedule = detail::empty_schedule("ring", Kind::all_reduce, blocks, ranks, ranks);
  schedule.any_order = true;
  for (int chunk = 0; chunk < ranks; ++chunk) {
    detail::Placed travelling;
    for (int step = 1; step <= ranks; ++step) {
      const int rank = (chunk + step) % ranks;
      const Operand output{Buffer::output, rank, 0, chunk, 1};
      const detail::Placed own = detail::append_local_sum(schedule, rank, chunk);
      if (step == 1) {
        travelling = own;
        if (ranks == 1)
          travelling =
              detail::append(schedule, rank, chunk, {Action::copy, output, own.where, {}, -1, {}, true}, {own});
        continue;
      }
      const bool root = step == ranks;
      const Operand dst = root ? output : detail::scratch_slots(schedule, rank, chunk, 1);
      Instruction reduce{Action::reduce, dst, travelling.where, own.where, -1, {}, root};
      travelling = detail::append(schedule, rank, chunk, std::move(reduce), {travelling, own});
    }
    for (int step = 1; step < ranks; ++step) {
      const int rank = (chunk + step) % ranks;
      const Operand dst{Buffer::output, rank, 0, chunk, 1};
      travelling =
          detail::append(schedule, rank, chunk, {Action::copy, dst, travelling.where, {}, -1, {}, false}, {travelling});
    }
  }
  return schedule;
}

}  // namespace replicator::detail::collectives
