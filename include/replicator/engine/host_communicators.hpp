// SPDX-License-Identifier: Apache-2.0
// HostCommunicators: the communicators of this host's devices. Device i of a team communicates with device i of the
// other teams. For audited steps each device has a second communicator, with the rank of the team before its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/connect/host_transport.hpp>
#include <replicator/collectives/connect/local_group.hpp>
#include <replicator/core/error.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/engine/placement.hpp>
#include <replicator/engine/replay/replay_communicator.hpp>
#include <replicator/job/host_identity.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/runtime/staged_collective.hpp>
#include <replicator/transport/first_reason.hpp>
#include <replicator/transport/why_apart.hpp>

namespace replicator::detail {

class HostCommunicators {
 public:
  // Collective: every process of the job calls it. Throws BuildError if the transport is not available. `shift`: the
  // devices of team t communicate as those of team t - shift.
  void connect(transport::Job& job, const Deployment& deployment, const Placement& placement, int shift = 0) {
    shift_ = shift;
    const auto each = static_cast<std::size_t>(placement.devices_per_team());
    communicators_.resize(static_cast<std::size_t>(placement.teams()) * each);
    for (std::size_t place = 0; place < each; ++place) {
      auto made = job.size() > 1 ? collectives::connect_hosts(deployment.transport, job, process_of_rank(placement), placement.blocks())
                                 : connect_threads(placement);
      for (auto& one : made) {
        const auto device = device_of(one->rank(), place, placement);
        communicators_[device] = std::move(one);
      }
    }
    if (!support_of(deployment.devices[0].kind).runs_on_host()) connect_devices(job, deployment, placement);
  }
  // Collective, after connect(): the communicators of second().
  void connect_second(transport::Job& job, const Deployment& deployment, const Placement& placement) {
    second_ = std::make_unique<HostCommunicators>();
    second_->connect(job, deployment, placement, 1);
  }
  // For a replay: one replica alone on this device; `replicas` is their number in the recorded job.
  void connect_replay(int replica, int replicas, const DeviceName& device) {
    communicators_.push_back(std::make_unique<ReplayCommunicator>(replica, replicas));
    const auto& support = support_of(device.kind);
    if (!support.runs_on_host()) of_devices_.push_back(std::make_unique<ReplayCommunicator>(replica, replicas, support, device.index));
  }
  void clear() {
    if (second_) second_->clear();
    of_devices_.clear();
    communicators_.clear();
  }

  collectives::Communicator& operator[](int device) const { return *communicators_[static_cast<std::size_t>(device)]; }
  // Those with which a device does the work of the team before its own. They exist after connect_second().
  const HostCommunicators& second() const { return *second_; }
  // For values in the memory of devices that have their own; null if they have none.
  collectives::Communicator* on_devices(int device) const { return of_devices_.empty() ? nullptr : of_devices_[static_cast<std::size_t>(device)].get(); }
  // The reason why devices with their own memory communicate through the host's memory; else empty.
  const std::string& through_host() const { return through_host_; }
  // True if processes wait for each other where they prepare collectives of devices.
  bool prepare_together() const { return !shared_groups_.empty(); }

  // True if all ranks are devices of this process.
  bool in_process() const { return !groups_.empty(); }
  // Releases every thread that waits, or is about to wait, by throwing this error there.
  void abort(const CommunicationError& error) {
    for (auto& group : groups_) group.abort(error);
    for (auto& group : device_groups_) group.abort(error);
    if (second_) second_->abort(error);
  }

 private:
  std::vector<int> process_of_rank(const Placement& placement) const {
    auto result = placement.process_of_team();
    std::rotate(result.begin(), result.begin() + shift_, result.end());
    return result;
  }
  // The ranks of this process, in ascending order.
  std::vector<int> ranks(const Placement& placement) const {
    std::vector<int> result;
    for (int rank = 0; rank < placement.blocks().ranks(); ++rank) {
      const int team = (rank + shift_) % placement.blocks().ranks() - placement.first_team();
      if (team >= 0 && team < placement.teams()) result.push_back(rank);
    }
    return result;
  }
  // The device that communicates as device `place` of this rank of this process.
  std::size_t device_of(int rank, std::size_t place, const Placement& placement) const {
    const int team = (rank + shift_) % placement.blocks().ranks() - placement.first_team();
    return static_cast<std::size_t>(team * placement.devices_per_team()) + place;
  }
  std::vector<std::unique_ptr<collectives::Communicator>> connect_threads(const Placement& placement) {
    return std::move(groups_.emplace_back(collectives::connect_threads(placement.blocks())).communicators);
  }

  // Connects either all devices directly or none of them, so that all handle the values of collectives in one way.
  void connect_devices(transport::Job& job, const Deployment& deployment, const Placement& placement) {
    const auto kind = deployment.devices[0].kind;
    const auto& support = support_of(kind);
    std::vector<int> indices;
    for (const auto& device : deployment.devices) indices.push_back(device.index);
    const auto reason = job.size() > 1 ? share(job, deployment, placement, indices) : transport::why_apart(support, name_of(kind), indices);
    if (!reason.empty()) {
      through_host_ = "through the host's memory: " + reason;
      for (std::size_t device = 0; device < indices.size(); ++device)
        of_devices_.push_back(std::make_unique<StagedCommunicator>(*communicators_[device], support, indices[device]));
      return;
    }
    const auto each = static_cast<std::size_t>(placement.devices_per_team()), teams = static_cast<std::size_t>(placement.teams());
    of_devices_.resize(teams * each);
    for (std::size_t place = 0; place < each; ++place) {
      auto& group = shared_groups_.empty() ? device_groups_.emplace_back(collectives::connect_devices(support, at_place(indices, placement, place), placement.blocks()))
                                           : shared_groups_[place];
      const auto here = ranks(placement);
      for (std::size_t team = 0; team < teams; ++team) of_devices_[device_of(here[team], place, placement)] = std::move(group.communicators[team]);
    }
  }
  // The devices with this place in their teams, by the rank as which they communicate.
  std::vector<int> at_place(const std::vector<int>& indices, const Placement& placement, std::size_t place) const {
    std::vector<int> result;
    for (const int rank : ranks(placement)) result.push_back(indices[device_of(rank, place, placement)]);
    return result;
  }
  // Collective. Makes groups of devices that open each other's memory across processes. Returns why that is not possible, or an
  // empty text; equal on every process.
  std::string share(transport::Job& job, const Deployment& deployment, const Placement& placement, const std::vector<int>& indices) {
    const auto kind = deployment.devices[0].kind;
    const auto& support = support_of(kind);
    if (!transport::same_host(job)) return "processes of several hosts meet there";
    if (auto reason = transport::first_reason(job, why_alone(deployment, support, indices)); !reason.empty()) return reason;
    for (int place = 0; place < placement.devices_per_team(); ++place) {
      if (auto reason = collectives::connect_shared_devices(job, support, name_of(kind), process_of_rank(placement),
                                                            at_place(indices, placement, static_cast<std::size_t>(place)), placement.blocks(), shared_groups_.emplace_back());
          !reason.empty()) {
        shared_groups_.clear();
        return reason;
      }
    }
    return {};
  }
  // This process's reason not to share the memory of its devices, or an empty text.
  static std::string why_alone(const Deployment& deployment, const DeviceSupport& support, const std::vector<int>& indices) {
    if (deployment.transport == "ucx") return "--transport ucx passes messages only";
    if (deployment.elastic) return "with --elastic a process may be lost while a queue of another one waits for it";
    if (!support.sharing) return "processes do not open each other's memory of devices of this kind";
    return transport::why_apart(support, name_of(deployment.devices[0].kind), indices);
  }

  // Their communicators are moved to those below.
  std::vector<collectives::LocalGroup> groups_;                            // by place in a team
  std::vector<collectives::LocalGroup> device_groups_;                     // likewise
  std::vector<collectives::LocalGroup> shared_groups_;                     // likewise; left alone by clear(): peers may still read
  std::vector<std::unique_ptr<collectives::Communicator>> communicators_;  // by device
  std::vector<std::unique_ptr<collectives::Communicator>> of_devices_;     // likewise
  std::string through_host_;
  int shift_ = 0;
  std::unique_ptr<HostCommunicators> second_;
};

}  // namespace replicator::detail
