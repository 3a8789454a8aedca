// SPDX-License-Identifier: Apache-2.0
// Simulates schedules on a described topology, by discrete events in virtual time, and returns how long they take. See
// docs/simulate.md for the model and its limits.
#pragma once

#include <replicator/collectives/simulate/simulation.hpp>
#include <replicator/collectives/topology.hpp>
#include <vector>

namespace replicator::detail::collectives {

// Every rank works through its list of actions. `actions` has one list for each rank, or one for all. Equal arguments give
// the same result, bit by bit. Throws BuildError where
// - topology, schedules and actions differ in the number of ranks,
// - an action names no collective, or pieces, jitter or a figure of the topology makes no sense,
// - a rank would wait for ever.
template <class = void>
Simulation simulate(const std::vector<SimulatedCollective>& collectives, const std::vector<std::vector<SimulatedAction>>& actions,
                    const Topology& topology, const SimulationOptions& options = {});

// Simulates one collective alone; all ranks start it at time 0.
template <class = void>
Simulation simulate(const Schedule& schedule, const CollectiveSpec& spec, const Topology& topology, int pieces = 1,
                    const SimulationOptions& options = {}) {
  using Kind = SimulatedAction::Kind;
  return simulate({{&schedule, spec, pieces}}, {{{Kind::start, 0, 0}, {Kind::wait, 0, 0}}}, topology, options);
}

}  // namespace replicator::detail::collectives
