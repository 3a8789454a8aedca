// SPDX-License-Identifier: Apache-2.0
// AsyncPlacement: which replicas are synchronous with each other in the asynchronous regime, and on which devices they
// are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <replicator/collectives/replica_blocks.hpp>
#include <replicator/engine/placement.hpp>
#include <replicator/replicate/deployment.hpp>

namespace replicator::detail {

// Groups of consecutive replicas, numbered over the whole job. Each group is within one process.
// - If a process has more groups than devices, each group is on one device, and a device makes the steps of its groups
//   in turn.
// - Otherwise each group has its own devices, the same number for all.
//
// The deployment must have passed require_async_possible and require_groups_fit. Devices are counted on their process.
class AsyncPlacement {
 public:
  AsyncPlacement(const Deployment& deployment, const Placement& placement, int process)
      : groups_{deployment.replicas / deployment.sync_group}, each_{deployment.sync_group}, process_{process} {
    const auto& owners = placement.process_of_team();
    for (int p = 0; p <= owners.back(); ++p)
      processes_.push_back({placement.replicas_of(p) / each_, static_cast<int>(std::count(owners.begin(), owners.end(), p))});
    for (int p = 0; p < process; ++p) first_group_ += processes_[static_cast<std::size_t>(p)].groups;
  }

  int groups() const { return groups_; }            // of the job
  int first_group() const { return first_group_; }  // of this process
  int groups_here() const { return here().groups; }
  int replicas_of_group() const { return each_; }
  int first_replica(int group) const { return group * each_; }
  int process() const { return process_; }
  int processes() const { return static_cast<int>(processes_.size()); }
  int process_of(int group) const {
    int process = 0;
    for (int end = processes_[0].groups; group >= end; end += processes_[static_cast<std::size_t>(process)].groups) ++process;
    return process;
  }
  // Indexed by group.
  std::vector<int> processes_of_groups() const {
    std::vector<int> result;
    for (std::size_t p = 0; p < processes_.size(); ++p) result.insert(result.end(), static_cast<std::size_t>(processes_[p].groups), static_cast<int>(p));
    return result;
  }
  int devices() const { return here().devices; }  // of this process
  int devices_of(int process) const { return processes_[static_cast<std::size_t>(process)].devices; }
  int devices_of_job() const {
    int sum = 0;
    for (const auto& process : processes_) sum += process.devices;
    return sum;
  }
  // `group` must be on this process.
  int devices_of_group() const { return std::max(1, here().devices / here().groups); }
  int first_device(int group) const {
    const auto [groups, devices] = here();
    return groups < devices ? (group - first_group_) * devices_of_group() : collectives::ReplicaBlocks{groups, devices}.rank_of(group - first_group_);
  }
  // The number of groups that make a step at the same time.
  int at_once() const {
    int sum = 0;
    for (const auto& process : processes_) sum += std::min(process.groups, process.devices);
    return sum;
  }

  // For messages: "replica 3", "the group of replicas 4 to 7 (on process 1)".
  std::string text(int group) const {
    const int first = first_replica(group);
    const auto where = process_of(group) == process_ ? std::string{} : " (on process " + std::to_string(process_of(group)) + ")";
    if (each_ == 1) return "replica " + std::to_string(first) + where;
    return "the group of replicas " + std::to_string(first) + " to " + std::to_string(first + each_ - 1) + where;
  }

 private:
  struct Process {
    int groups, devices;
  };
  const Process& here() const { return processes_[static_cast<std::size_t>(process_)]; }

  int groups_, each_, process_;
  int first_group_ = 0;
  std::vector<Process> processes_;
};

}  // namespace replicator::detail
