// SPDX-License-Identifier: Apache-2.0
// Which replicas are synchronous with each other in the asynchronous regime, and on which devices they are.
#pragma once

#include <algorithm>
#include <string>

#include <replicator/collectives/replica_blocks.hpp>
#include <replicator/replicate/deployment.hpp>

namespace replicator {

// Groups of replicas in a row. With more groups than devices each is on one, and a device makes the steps of its groups in turn; with fewer
// each has as many devices, of its own. For a deployment that require_async_possible lets pass.
class AsyncPlacement {
 public:
  explicit AsyncPlacement(const Deployment& deployment)
      : groups_{deployment.replicas / deployment.sync_group}, each_{deployment.sync_group}, devices_{static_cast<int>(deployment.devices.size())} {}

  int groups() const { return groups_; }
  int replicas_of_group() const { return each_; }
  int first_replica(int group) const { return group * each_; }
  int devices() const { return devices_; }
  int devices_of_group() const { return std::max(1, devices_ / groups_); }
  // The first of the group's.
  int first_device(int group) const {
    return groups_ < devices_ ? group * devices_of_group() : collectives::ReplicaBlocks{groups_, devices_}.rank_of(group);
  }
  // How many groups make a step at the same time.
  int at_once() const { return std::min(groups_, devices_); }

  // For messages: "replica 3", "the group of replicas 4 to 7".
  std::string text(int group) const {
    const int first = first_replica(group);
    if (each_ == 1) return "replica " + std::to_string(first);
    return "the group of replicas " + std::to_string(first) + " to " + std::to_string(first + each_ - 1);
  }

 private:
  int groups_, each_, devices_;
};

}  // namespace replicator
