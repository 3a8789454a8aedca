// SPDX-License-Identifier: Apache-2.0
// The code of simulate.hpp: checks the arguments and runs the simulator.
#pragma once

#include <cstddef>
#include <replicator/collectives/simulate/simulate.hpp>
#include <replicator/collectives/simulate/simulator.hpp>
#include <replicator/core/number_text.hpp>
#include <string>
#include <vector>

namespace replicator::detail::collectives {

template <class>
Simulation simulate(const std::vector<SimulatedCollective>& collectives, const std::vector<std::vector<SimulatedAction>>& actions,
                    const Topology& topology, const SimulationOptions& options) {
  topology.require();
  const int ranks = topology.ranks();
  for (const SimulatedCollective& each : collectives) {
    if (each.schedule->ranks() != ranks)
      throw BuildError{"the schedule \"" + each.schedule->name + "\" for " + std::to_string(each.schedule->ranks()) +
                       " ranks was to be simulated on a topology of \"" + topology.text() +
                       "\": name the devices of a host, then the hosts; their product must be all ranks"};
    if (each.pieces < 1) throw BuildError{"a collective was to be simulated in " + std::to_string(each.pieces) + " pieces: 1 is the least"};
  }
  if (actions.size() != 1 && actions.size() != static_cast<std::size_t>(ranks))
    throw BuildError{std::to_string(actions.size()) + " lists of actions were given for " + std::to_string(ranks) +
                     " simulated ranks: give one for each, or one for all"};
  for (const auto& list : actions)
    for (const SimulatedAction& action : list)
      if (action.kind != SimulatedAction::Kind::compute &&
          (action.collective < 0 || static_cast<std::size_t>(action.collective) >= collectives.size()))
        throw BuildError{"a simulated rank starts or waits for collective " + std::to_string(action.collective) + ", of " +
                         std::to_string(collectives.size())};
  for (const double jitter : {options.jitter, options.device_jitter})
    if (!(jitter >= 0)) throw BuildError{"the jitter of a simulation is " + replicator::detail::number_text(jitter) + ": say 0.05 for 5 %"};
  return detail::Simulator{collectives, actions, topology, options}.run();
}

}  // namespace replicator::detail::collectives
