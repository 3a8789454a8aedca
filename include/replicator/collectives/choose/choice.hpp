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

// The schedule for a collective of any kind. Throws BuildError for arguments that do not fit together, and for a root that does not
// exist.
// - `block_bytes`: of one block
// - `root`: for broadcast only, a position in each group
// - `wanted`: for all_reduce of all replicas only; but its topology, if any, predicts the time of every kind
// - `latency`: of the communicator
template <class = void>
Choice choose(Kind kind, std::int64_t block_bytes, const ReplicaBlocks& blocks, int root = 0,
              bool any_order = false, const AllReducePreference& wanted = {}, const Groups& groups = {},
              transport::Latency latency = transport::Latency::messages);

}  // namespace replicator::detail::collectives
