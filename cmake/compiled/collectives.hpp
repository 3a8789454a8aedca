// SPDX-License-Identifier: Apache-2.0
// Instantiates choosing, simulating and running collectives, and the transports of every build.
#pragma once

#include <replicator/collectives/connect/host_transport.hpp>
#include <replicator/collectives/connect/measure_topology.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/transport/in_process.hpp>
#include <replicator/transport/in_process_devices.hpp>
#include <replicator/transport/shared_devices.hpp>
#include "schedules.hpp"

namespace replicator::detail::collectives {

REPLICATOR_TEMPLATE std::unique_ptr<Communicator> make_communicator(transport::InProcess&&, const ReplicaBlocks&, std::size_t);
REPLICATOR_TEMPLATE std::unique_ptr<Communicator> make_communicator(transport::InProcessDevices&&, const ReplicaBlocks&, std::size_t);
REPLICATOR_TEMPLATE std::unique_ptr<Communicator> make_communicator(transport::SharedDevices&&, const ReplicaBlocks&, std::size_t);
REPLICATOR_TEMPLATE std::vector<std::unique_ptr<Communicator>> connect_hosts<>(const std::string&, transport::Job&, const std::vector<int>&,
                                                                               const ReplicaBlocks&);
REPLICATOR_TEMPLATE std::vector<std::unique_ptr<transport::Messenger>> connect_messengers<>(const std::string&, transport::Job&, const std::vector<int>&);
REPLICATOR_TEMPLATE MeasuredJob measure_job<>(transport::Job&, const std::string&, int, const MeasureOptions&);

}  // namespace replicator::detail::collectives
