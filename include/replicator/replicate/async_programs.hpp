// SPDX-License-Identifier: Apache-2.0
// A step compiled for the asynchronous regime: a program for each group of replicas, and one for each shard of the variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/resolve_async.hpp>
#include <replicator/collectives/run.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/replicate/host.hpp>
#include <replicator/replicate/memory_limit.hpp>
#include <replicator/replicate/replay_communicator.hpp>
#include <replicator/replicate/require_async.hpp>
#include <replicator/runtime/planner.hpp>
#include <replicator/runtime/shard.hpp>
#include <replicator/transport/in_process.hpp>

namespace replicator {

// Replicas that are synchronous with each other, on one device.
struct AsyncGroup {
  int index = 0;
  int first = 0;  // replica
  int count = 1;
  int device = 0;
  std::unique_ptr<transport::InProcessGroup> wire;
  std::unique_ptr<collectives::Communicator> communicator;
  Resolution resolution;
  std::vector<LoweredGraph> lowered;
  Program program;
  std::vector<AnyArray> means;  // of the group's gradients, by ordinal: where the program leaves them
};

// Variables that are always updated together. Their values are copy 0 of the VariableStore, those that device d computes from are copy d + 1.
struct AsyncShard {
  std::vector<std::string> variables;
  std::int64_t bytes = 0;
  int device = 0;  // whose they are
  Resolution resolution;
  std::vector<LoweredGraph> lowered;
  std::unique_ptr<collectives::Communicator> communicator;
  Program program;
  std::unique_ptr<Shard> gate;
};

class AsyncPrograms {
 public:
  // `traced`: of all replicas. Throws as resolve_async does, and what compiling a step throws. `host` outlives this.
  AsyncPrograms(Host& host, std::span<const Graph> traced, int ordinal, const Shard::Waiting& waiting)
      : host_{host}, deployment_{host.deployment()}, seed_{host.compiler().seed_of(ordinal)} {
    const auto devices = static_cast<int>(deployment_.devices.size());
    auto resolution = resolve_async(traced, devices, options());
    results_ = resolution.results;
    host_.checkpoints().declare(host_.variables(), resolution.whole, ordinal);
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    for (int group = 0; group < groups_of(deployment_); ++group) add_group(resolution, group);
    for (auto& shard : resolution.shards) add_shard(shard, waiting);
    find_copies();
    whole_ = std::move(resolution.whole);
  }

  std::uint64_t seed() const { return seed_; }
  std::size_t results() const { return results_; }  // of the step function
  const Resolution& whole() const { return whole_; }
  std::vector<std::unique_ptr<AsyncGroup>>& groups() { return groups_; }
  std::vector<std::unique_ptr<AsyncShard>>& shards() { return shards_; }

  // The device's own values of the shard's variables, made what they are now.
  void pull(std::size_t shard, int device) const { copy(copies_[shard][static_cast<std::size_t>(device)]); }
  // The same of all variables that no shard has, for all devices.
  void pull_unchanging() const {
    for (const auto& device : copies_.back()) copy(device);
  }

 private:
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  static void copy(const std::vector<Copy>& copies) {
    for (const auto& each : copies)
      if (each.bytes > 0) std::memcpy(each.to, each.from, each.bytes);
  }

  ResolveOptions options() const {
    ResolveOptions options;
    options.bucket_bytes = deployment_.bucket_bytes;
    options.recompute = {deployment_.recompute_bytes};
    return options;
  }
  std::vector<LoweredGraph> lowered(const Resolution& resolution) {
    std::vector<LoweredGraph> result;
    for (const auto& one : resolution.classes) result.push_back(lower(one, DeviceKind::cpu, host_.compiler().cache()));
    return result;
  }

  void add_group(const AsyncResolution& resolution, int index) {
    auto& group = *groups_.emplace_back(std::make_unique<AsyncGroup>());
    group.index = index;
    group.count = deployment_.sync_group;
    group.first = index * group.count;
    group.device = collectives::ReplicaBlocks{groups_of(deployment_), static_cast<int>(deployment_.devices.size())}.rank_of(index);
    group.wire = std::make_unique<transport::InProcessGroup>(1);
    group.communicator = collectives::make_communicator(transport::InProcess{*group.wire, 0}, {group.count, 1});
    group.resolution = resolve(std::span{resolution.steps}.subspan(static_cast<std::size_t>(group.first), static_cast<std::size_t>(group.count)), options());
    group.lowered = lowered(group.resolution);
    group.program = plan({.resolution = group.resolution,
                          .lowered = group.lowered,
                          .variables = host_.variables(),
                          .communicator = *group.communicator,
                          .copy = group.device + 1,
                          .replicas_before = group.first,
                          .all_reduce = all_reduce_,
                          .memory_limit = memory_limit(deployment_, static_cast<std::size_t>(group.device))});
    for (std::size_t k = results_; k < group.program.results.size(); ++k) {
      auto& mean = group.program.results[k][0];
      group.means.push_back(AnyArray::borrow(mean.type(), mean.data(), nullptr));
    }
  }
  void add_shard(ShardGraph& graph, const Shard::Waiting& waiting) {
    auto& shard = *shards_.emplace_back(std::make_unique<AsyncShard>());
    const auto device = static_cast<int>(shards_.size()) - 1;
    shard.variables = std::move(graph.variables);
    shard.bytes = graph.bytes;
    shard.device = device;
    shard.resolution = resolve({&graph.update, 1}, options());
    shard.lowered = lowered(shard.resolution);
    shard.communicator = std::make_unique<ReplayCommunicator>(0, 1);
    shard.program = plan({.resolution = shard.resolution,
                          .lowered = shard.lowered,
                          .variables = host_.variables(),
                          .communicator = *shard.communicator,
                          .all_reduce = all_reduce_,
                          .memory_limit = memory_limit(deployment_, static_cast<std::size_t>(device))});
    shard.gate = std::make_unique<Shard>(groups_of(deployment_), deployment_.staleness, waiting);
  }

  // Of what the steps read.
  void find_copies() {
    auto unchanging = variables_read();
    for (const auto& shard : shards_) {
      std::vector<std::string> read;
      for (const auto& name : shard->variables)
        if (unchanging.erase(name) > 0) read.push_back(name);
      add_copies(read);
    }
    add_copies({unchanging.begin(), unchanging.end()});
  }
  std::set<std::string> variables_read() const {
    std::set<std::string> names;
    for (const auto& group : groups_)
      for (const auto& one : group->resolution.classes)
        for (const auto& node : one.graph.nodes())
          if (const auto* read = node.get<Read>(); read && one.graph.variables()[read->variable].kind == VariableKind::mirrored)
            names.insert(one.graph.variables()[read->variable].name);
    return names;
  }
  void add_copies(const std::vector<std::string>& names) {
    auto& by_device = copies_.emplace_back();
    auto& variables = host_.variables();
    for (int device = 0; device < static_cast<int>(deployment_.devices.size()); ++device) {
      auto& list = by_device.emplace_back();
      for (const auto& name : names)
        list.push_back({variables.data(name, 0), variables.data(name, device + 1), variables.declaration(name).type.bytes()});
    }
  }

  Host& host_;
  const Deployment& deployment_;
  std::uint64_t seed_;
  collectives::AllReducePreference all_reduce_;
  std::size_t results_ = 0;
  Resolution whole_;
  std::vector<std::unique_ptr<AsyncGroup>> groups_;
  std::vector<std::unique_ptr<AsyncShard>> shards_;
  std::vector<std::vector<std::vector<Copy>>> copies_;  // by shard, by device; last those of variables without one
};

}  // namespace replicator
