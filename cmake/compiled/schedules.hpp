// SPDX-License-Identifier: Apache-2.0
// Instantiates choosing and simulating schedules. Units that need no transport include this part of collectives.hpp alone.
#pragma once

#include <replicator/collectives/choose/choice.hpp>
#include <replicator/collectives/simulate/simulate.hpp>

namespace replicator::detail::collectives {

REPLICATOR_TEMPLATE Choice choose<>(Kind, std::int64_t, const ReplicaBlocks&, int, bool, const AllReducePreference&, const Groups&, transport::Latency);
REPLICATOR_TEMPLATE Simulation simulate<>(const std::vector<SimulatedCollective>&, const std::vector<std::vector<SimulatedAction>>&, const Topology&,
                                          const SimulationOptions&);

}  // namespace replicator::detail::collectives
