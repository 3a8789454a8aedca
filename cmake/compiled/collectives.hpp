// SPDX-License-Identifier: Apache-2.0
// Instantiates choosing and simulating collectives, and the communicators of every build.
#pragma once

#include <replicator/collectives/connect/host_transport.hpp>
#include <replicator/collectives/connect/local_group.hpp>
#include <replicator/transport/why_apart.hpp>
#include "schedules.hpp"

namespace replicator::detail::collectives {

REPLICATOR_TEMPLATE CombineFunction combine_function<>(DType, Reduction);
REPLICATOR_TEMPLATE void finish_root<>(DType, Reduction, std::byte*, std::int64_t, int);
REPLICATOR_TEMPLATE LocalGroup connect_threads<>(const ReplicaBlocks&);
REPLICATOR_TEMPLATE LocalGroup connect_devices<>(const DeviceSupport&, const std::vector<int>&, const ReplicaBlocks&);
REPLICATOR_TEMPLATE std::string connect_shared_devices<>(transport::Job&, const DeviceSupport&, std::string_view, const std::vector<int>&, const std::vector<int>&,
                                                         const ReplicaBlocks&, LocalGroup&);
REPLICATOR_TEMPLATE std::vector<std::unique_ptr<Communicator>> connect_hosts<>(const std::string&, transport::Job&, const std::vector<int>&,
                                                                               const ReplicaBlocks&);
REPLICATOR_TEMPLATE std::vector<std::unique_ptr<transport::Messenger>> connect_messengers<>(const std::string&, transport::Job&, const std::vector<int>&);

}  // namespace replicator::detail::collectives

namespace replicator::detail::transport {

REPLICATOR_TEMPLATE std::string why_apart<>(const DeviceSupport&, std::string_view, std::span<const int>);

}  // namespace replicator::detail::transport
