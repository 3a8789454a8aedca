// SPDX-License-Identifier: Apache-2.0
// Between whom the devices of this host communicate: each device of a team with the same device of the other teams.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/collectives/host_transport.hpp>
#include <replicator/collectives/run.hpp>
#include <replicator/core/error.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/placement.hpp>
#include <replicator/replicate/replay_communicator.hpp>
#include <replicator/transport/in_process.hpp>
#include <replicator/transport/job.hpp>

namespace replicator {

class HostCommunicators {
 public:
  // Collective: every process of the job calls it. Throws BuildError for a transport that is not there.
  void connect(transport::Job& job, const Deployment& deployment, const Placement& placement) {
    const auto each = static_cast<std::size_t>(placement.devices_per_team());
    communicators_.resize(static_cast<std::size_t>(placement.teams()) * each);
    for (std::size_t place = 0; place < each; ++place) {
      auto made = job.size() > 1 ? collectives::connect_hosts(deployment.transport, job, placement.process_of_team(),
                                                              placement.blocks())
                                 : connect_threads(placement);
      for (std::size_t team = 0; team < made.size(); ++team) communicators_[team * each + place] = std::move(made[team]);
    }
  }
  // One replica of so many, alone.
  void connect_replay(int replica, int replicas) { communicators_.push_back(std::make_unique<ReplayCommunicator>(replica, replicas)); }
  void clear() { communicators_.clear(); }

  collectives::Communicator& operator[](int device) const { return *communicators_[static_cast<std::size_t>(device)]; }

  // All others are devices of this process.
  bool in_process() const { return !groups_.empty(); }
  // Releases them: whoever waits, or is about to, throws this.
  void abort(const CommunicationError& error) {
    for (auto& group : groups_) group->abort(error);
  }

 private:
  std::vector<std::unique_ptr<collectives::Communicator>> connect_threads(const Placement& placement) {
    auto& group = groups_.emplace_back(std::make_unique<transport::InProcessGroup>(placement.teams()));
    std::vector<std::unique_ptr<collectives::Communicator>> made;
    for (int team = 0; team < placement.teams(); ++team)
      made.push_back(collectives::make_communicator(transport::InProcess{*group, team}, placement.blocks()));
    return made;
  }

  std::vector<std::unique_ptr<transport::InProcessGroup>> groups_;  // by place in a team
  std::vector<std::unique_ptr<collectives::Communicator>> communicators_;  // by device
};

}  // namespace replicator
