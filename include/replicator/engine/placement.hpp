// SPDX-License-Identifier: Apache-2.0
// Placement: which replicas are on which devices of which process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <replicator/collectives/schedule.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/parse_devices.hpp>

namespace replicator::detail {

// A team is a group of devices of one process that hold the same replicas. It has one device for each logical device,
// or fewer that share them. Teams are the ranks of collectives, those of process 0 first. Device i of a team
// communicates with device i of the other teams.
class Placement {
 public:
  // Collective: every process calls it. Throws BuildError if the devices cannot be dealt evenly, or if there are more
  // teams than replicas.
  Placement(transport::Job& job, const Deployment& deployment)
      : devices_per_team_{deployment.devices_per_replica()}, process_of_team_{deal_teams(job, deployment)}, blocks_{deal_replicas(job, deployment)} {
    begin_ = blocks_.begin(first_team_);
    end_ = blocks_.end(first_team_ + teams_ - 1);
  }
  // The placement of a replay: one replica on one device of one process. The other replicas are nowhere.
  static Placement alone(int replica, int replicas) { return {replica, replicas}; }

  int devices_per_team() const { return devices_per_team_; }
  const std::vector<int>& process_of_team() const { return process_of_team_; }
  const collectives::ReplicaBlocks& blocks() const { return blocks_; }
  // Of this process:
  int teams() const { return teams_; }
  int begin() const { return begin_; }  // its replicas
  int end() const { return end_; }
  // The team of the process's device `device`, counted on this process, and the device's place in that team.
  int team_of(int device) const { return device / devices_per_team_; }
  int place_of(int device) const { return device % devices_per_team_; }
  // In the second computation of an audited step, each team does the work of the team before it, counted over all
  // processes. That of a team of this process may belong to another one.
  int audited_by(int team) const { return (first_team_ + team + blocks_.ranks() - 1) % blocks_.ranks(); }
  int first_team() const { return first_team_; }  // of this process
  // The replicas of a team of this process, counted from begin().
  int first_replica(int team) const { return blocks_.begin(first_team_ + team) - begin_; }
  int replicas(int team) const { return blocks_.count(first_team_ + team); }

  int replicas_of(int process) const {
    int count = 0;
    for (int team = 0; team < blocks_.ranks(); ++team)
      if (process_of_team_[static_cast<std::size_t>(team)] == process) count += blocks_.count(team);
    return count;
  }
  // {teams of a process, processes}; empty if the processes have different numbers of teams.
  std::vector<int> grid() const {
    const auto ranks = static_cast<int>(process_of_team_.size());
    const auto each = static_cast<int>(std::count(process_of_team_.begin(), process_of_team_.end(), 0));
    for (int rank = 0; rank < ranks; ++rank)
      if (process_of_team_[static_cast<std::size_t>(rank)] != rank / each) return {};
    return ranks % each == 0 ? std::vector{each, ranks / each} : std::vector<int>{};
  }
  // The process of a rank; -1 if there is no such rank.
  int process_of(int rank) const { return rank >= 0 && rank < blocks_.ranks() ? process_of_team_[static_cast<std::size_t>(rank)] : -1; }

 private:
  Placement(int replica, int replicas)
      : devices_per_team_{1}, teams_{1}, first_team_{replica}, process_of_team_(static_cast<std::size_t>(replicas), -1), blocks_{replicas, replicas}, begin_{replica}, end_{replica + 1} {
    process_of_team_[static_cast<std::size_t>(replica)] = 0;
  }

  std::vector<int> deal_teams(transport::Job& job, const Deployment& deployment) {
    teams_ = static_cast<int>(deployment.devices.size()) / devices_per_team_;
    const std::uint64_t mine[] = {static_cast<std::uint64_t>(teams_), static_cast<std::uint64_t>(devices_per_team_)};
    std::vector<int> owners;
    static constexpr const char* what = "the exchange of device counts";
    const auto all = job.exchange(std::as_bytes(std::span{mine}), what);
    for (int process = 0; process < job.size(); ++process) {
      const auto& part = all[static_cast<std::size_t>(process)];
      std::uint64_t theirs[2] = {};
      transport::require_contribution(part.size() == sizeof theirs, process, part.size(), what);
      std::memcpy(theirs, part.data(), sizeof theirs);
      if (theirs[0] < 1 || theirs[0] > static_cast<std::uint64_t>(detail::most_devices))
        throw CommunicationError{job.describe(process) + " says that it has " + std::to_string(theirs[0]) + " groups of devices; 1 to " +
                                     std::to_string(detail::most_devices) + " are possible: it runs another program, or its memory is damaged",
                                 process};
      if (theirs[1] != mine[1])
        throw BuildError{"the processes of this job differ in the devices of a replica: process " + std::to_string(process) + " has " +
                         std::to_string(theirs[1]) + ", process " + std::to_string(job.rank()) + " has " + std::to_string(mine[1]) +
                         ": name as many --devices with the same --logical-devices on every host"};
      if (process == job.rank()) first_team_ = static_cast<int>(owners.size());
      owners.insert(owners.end(), theirs[0], process);
    }
    return owners;
  }
  collectives::ReplicaBlocks deal_replicas(const transport::Job& job, const Deployment& deployment) const {
    const auto teams = static_cast<int>(process_of_team_.size());
    if (deployment.replicas < teams)
      throw BuildError{"asked for --replicas " + std::to_string(deployment.replicas) + " on " + std::to_string(teams * devices_per_team_) +
                       " devices of " + std::to_string(job.size()) + " process(es): every device needs at least one replica" +
                       (devices_per_team_ > 1 ? ", and " + std::to_string(devices_per_team_) + " devices share theirs" : std::string{}) +
                       "; raise --replicas or name fewer --devices"};
    return {deployment.replicas, teams};
  }

  int devices_per_team_;
  int teams_ = 0;
  int first_team_ = 0;
  std::vector<int> process_of_team_;
  collectives::ReplicaBlocks blocks_;
  int begin_ = 0, end_ = 0;
};

}  // namespace replicator::detail
