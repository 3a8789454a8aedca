// SPDX-License-Identifier: Apache-2.0
// Connects ranks of several processes by shared memory or UCX.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <replicator/collectives/run/communicator.hpp>
#include <replicator/job/job.hpp>
#include <replicator/transport/messenger.hpp>

namespace replicator::detail::collectives {

// Collective over the job: makes the communicators of this process's ranks, in ascending order. process_of_rank[r] owns
// rank r. `name`: auto, shared_memory or ucx; auto takes shared memory where all processes are on one host. Throws
// BuildError for an unknown transport, and where UCX is needed but not part of the program.
template <class = void>
std::vector<std::unique_ptr<Communicator>> connect_hosts(const std::string& name, transport::Job& job, const std::vector<int>& process_of_rank,
                                                         const ReplicaBlocks& blocks);
// As connect_hosts, for messages of any kind.
template <class = void>
std::vector<std::unique_ptr<transport::Messenger>> connect_messengers(const std::string& name, transport::Job& job, const std::vector<int>& process_of_rank);

}  // namespace replicator::detail::collectives
