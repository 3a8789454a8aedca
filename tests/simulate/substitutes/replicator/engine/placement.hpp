// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: the same number of devices on each process.
#pragma once

#include <vector>

#include <replicator/collectives/replica_blocks.hpp>
#include <replicator/replicate/deployment.hpp>

namespace replicator::detail {

class Placement {
 public:
  Placement(int processes, int devices, int replicas) : blocks_{replicas, processes * devices} {
    for (int team = 0; team < processes * devices; ++team) process_of_team_.push_back(team / devices);
  }
  const std::vector<int>& process_of_team() const { return process_of_team_; }
  int replicas_of(int process) const {
    int count = 0;
    for (int team = 0; team < blocks_.ranks(); ++team)
      if (process_of_team_[static_cast<std::size_t>(team)] == process) count += blocks_.count(team);
    return count;
  }

 private:
  collectives::ReplicaBlocks blocks_;
  std::vector<int> process_of_team_;
};

}  // namespace replicator::detail
