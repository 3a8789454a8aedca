// SPDX-License-Identifier: Apache-2.0
// Choice: the schedule that a collective takes, and the reason.
#pragma once

#include <cstdint>
#include <string>

#include <replicator/collectives/all_reduce_preference.hpp>
#include <replicator/collectives/schedule.hpp>
#include <replicator/transport/transport.hpp>

namespace replicator::detail::collectives {

// A schedule, and why it was chosen.
struct Choice {
  Schedule schedule;
  std::string reason;       // one line, for explain()
  double microseconds = 0;  // predicted; 0 where no topology is known
};

// Chooses the schedule for a collective of any kind.
// - `block_bytes`: the size of one block
// - `root`: a position in each group. Only broadcast reads it.
// - `wanted`: the algorithm for an all_reduce of all replicas. Its topology, if it has one, predicts the time of every kind.
// - `latency`: that of the communicator
//
// Throws BuildError for arguments that do not fit together, and for a root that does not exist.
template <class = void>
Choice choose(Kind kind, std::int64_t block_bytes, const ReplicaBlocks& blocks, int root = 0,
              bool any_order = false, const AllReducePreference& wanted = {}, const Groups& groups = {},
              transport::Latency latency = transport::Latency::messages);

}  // namespace replicator::detail::collectives
