// SPDX-License-Identifier: Apache-2.0
// LocalGroup: communicators of ranks that meet in the memory of one host, which they read and write directly.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/collectives/run/communicator.hpp>
#include <replicator/core/error.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail::collectives {

struct LocalGroup {
  std::shared_ptr<void> state;                               // what the communicators share. It must outlive them
  std::vector<std::unique_ptr<Communicator>> communicators;  // of this process's ranks, in ascending order
  // Releases every thread that waits in a communicator, or is about to, by throwing this error there. Null where ranks
  // are of several processes.
  std::function<void(const CommunicationError&)> abort;
};

// Ranks that are threads of this process.
template <class = void>
LocalGroup connect_threads(const ReplicaBlocks& blocks);

// Ranks that are devices of this process; devices[r] is the index of rank r's. They reach each other: see
// transport::why_apart.
template <class = void>
LocalGroup connect_devices(const DeviceSupport& support, const std::vector<int>& devices, const ReplicaBlocks& blocks);

// Ranks that are devices of several processes of a host.
// - process_of_rank[r] owns rank r
// - `devices`: the index of each of this process's ranks
// - `kind`: the name of the kind of device, for messages
//
// Collective. Returns why the processes do not open each other's memory or read it wrongly, the same text on every
// process. If it is empty, `group` is made.
template <class = void>
std::string connect_shared_devices(transport::Job& job, const DeviceSupport& support, std::string_view kind, const std::vector<int>& process_of_rank,
                                   const std::vector<int>& devices, const ReplicaBlocks& blocks, LocalGroup& group);

}  // namespace replicator::detail::collectives
