// SPDX-License-Identifier: Apache-2.0
// AsyncPrograms: a step compiled for the asynchronous regime. It has a program for each group of replicas and one for
// each shard of the variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/async_copies.hpp>
#include <replicator/async/async_placement.hpp>
#include <replicator/async/async_results.hpp>
#include <replicator/async/resolve_async.hpp>
#include <replicator/async/shard.hpp>
#include <replicator/collectives/connect/local_group.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/engine/host.hpp>
#include <replicator/engine/memory_limit.hpp>
#include <replicator/engine/replay/replay_communicator.hpp>
#include <replicator/runtime/device_threads.hpp>
#include <replicator/runtime/execution_options.hpp>
#include <replicator/runtime/plan/plan_request.hpp>

namespace replicator::detail {

// One device of a group, with the group's replicas on that device.
struct AsyncMember {
  int device = 0;
  int first = 0;  // the first replica
  int count = 1;
  std::unique_ptr<collectives::Communicator> communicator;
  Program program;
};

// Shared by all groups whose replicas have equal graphs.
struct AsyncGraphs {
  Resolution resolution;
  std::vector<LoweredGraph> lowered;
};

// A group of replicas that are synchronous with each other: one asynchronous worker.
struct AsyncGroup {
  int index = 0;
  collectives::LocalGroup wire;  // its communicators are the members'
  std::shared_ptr<const AsyncGraphs> graphs;
  std::vector<AsyncMember> members;  // the first is the leader, which pulls and pushes for all
  std::vector<AnyArray> means;       // results of the step's all-reduces, by ordinal, in the memory of the first member's program
};

// Variables that are always updated together. Their newest values are copy 0 in the VariableStore of the owning
// process. A group computes from copy d + 1 in its own process's store, where d is the first device of the group.
struct AsyncShard {
  std::vector<std::string> variables;
  std::vector<std::pair<std::uint32_t, TensorType>> gradients;  // the inputs of an update, by ordinal
  std::int64_t bytes = 0;
  int owner = 0;   // process
  int device = 0;  // index on the owner
  // Only on the owner; empty on other processes.
  Resolution resolution;
  std::vector<LoweredGraph> lowered;
  std::unique_ptr<collectives::Communicator> communicator;
  Program program;
  std::unique_ptr<Shard> gate;
};

class AsyncPrograms {
 public:
  // Collective, as a part of host.building(). `traced`: the graphs of this process's replicas. Throws as resolve_async
  // does, and any error of compiling a step. `host` outlives this object.
  AsyncPrograms(Host& host, std::span<const Graph> traced, int ordinal)
      : host_{host}, deployment_{host.deployment()}, placement_{deployment_, host.placement(), host.job().rank()}, seed_{host.compiler().seed_of(ordinal)}, all_reduce_{collectives::parse_all_reduce(deployment_.schedule, {placement_.devices_of_group(), 1})} {
    auto resolution = resolve_async(traced, placement_.devices_of_job(), placement_.groups(), host.compiler().resolve_options());
    host_.compiler().declare(resolution.whole, ordinal, host_.variables(), host_.sets(), host_.checkpoints());
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    for (int g = 0; g < placement_.groups_here(); ++g) add_group(resolution, placement_.first_group() + g);
    results_ = AsyncResults{result_types(resolution.results), placement_.replicas_of_group()};
    for (auto& shard : resolution.shards) add_shard(shard);
    std::vector<std::vector<std::string>> of_shards;
    for (const auto& shard : shards_) of_shards.push_back(shard->variables);
    copies_.emplace(host_.building(), host_.variables(), placement_.devices(), of_shards, variables_read());
    whole_ = std::move(resolution.whole);
  }

  const Deployment& deployment() const { return deployment_; }
  const AsyncPlacement& placement() const { return placement_; }
  std::uint64_t seed() const { return seed_; }
  const AsyncResults& results() const { return results_; }  // of the step function
  const Resolution& whole() const { return whole_; }
  std::vector<std::unique_ptr<AsyncGroup>>& groups() { return groups_; }  // of this process
  std::vector<std::unique_ptr<AsyncShard>>& shards() { return shards_; }  // of the job
  const AsyncCopies& copies() const { return *copies_; }

  // The memory of the variable in copy 0.
  std::span<std::byte> bytes_of(const std::string& variable) const {
    return {host_.variables().data(variable, 0), host_.variables().declaration(variable).type.bytes()};
  }
  // Makes an update of a shard of this process. The caller holds the shard's gate. `before`: the number of earlier
  // updates. The step number of an update is `before` divided by the number of groups, as if each group made one update
  // in each step.
  void update(AsyncShard& shard, const std::vector<AnyArray>& gradients, std::int64_t before) const {
    execute(shard.program, {&gradients, 1},
            {.seed = seed_, .step = static_cast<std::uint64_t>(before) / static_cast<std::uint64_t>(placement_.groups()), .capture = deployment_.capture});
  }

 private:
  void add_group(const AsyncResolution& resolution, int index) {
    auto& group = *groups_.emplace_back(std::make_unique<AsyncGroup>());
    const int first = placement_.first_replica(index), count = placement_.replicas_of_group(), devices = placement_.devices_of_group();
    group.index = index;
    const int before = placement_.first_replica(placement_.first_group());
    group.graphs = graphs_of(std::span{resolution.steps}.subspan(static_cast<std::size_t>(first - before), static_cast<std::size_t>(count)));
    const collectives::ReplicaBlocks blocks{count, devices};
    group.wire = collectives::connect_threads(blocks);
    for (int rank = 0; rank < devices; ++rank) {
      auto& member = group.members.emplace_back();
      member.device = placement_.first_device(index) + rank;
      member.first = first + blocks.begin(rank);
      member.count = blocks.count(rank);
      member.communicator = std::move(group.wire.communicators[static_cast<std::size_t>(rank)]);
    }
    DeviceThreads threads{devices};
    threads.run([&](int rank) { plan_member(group, group.members[static_cast<std::size_t>(rank)]); },
                [&](const std::exception_ptr&) { group.wire.abort({"another device of the group failed", 0}); });
    auto& results = group.members[0].program.results;
    for (std::size_t k = resolution.results; k < results.size(); ++k)  // those after the results of the step function
      group.means.push_back(AnyArray::borrow(results[k][0].type(), results[k][0].data(), nullptr));
  }
  // The types of the first `count` results: those of the step function.
  std::vector<TensorType> result_types(std::size_t count) const {
    std::vector<TensorType> types;
    for (std::size_t k = 0; k < count; ++k) types.push_back(groups_[0]->members[0].program.results[k][0].type());
    return types;
  }
  std::shared_ptr<const AsyncGraphs> graphs_of(std::span<const Graph> steps) {
    std::vector<Digest> key;
    for (const auto& step : steps) key.push_back(digest_of(step));
    auto& known = graphs_[key];
    if (!known) {
      auto made = std::make_shared<AsyncGraphs>();
      made->resolution = resolve(steps, host_.compiler().local_resolve_options());
      made->lowered = host_.compiler().lower_classes(made->resolution);
      known = std::move(made);
    }
    return known;
  }
  void plan_member(const AsyncGroup& group, AsyncMember& member) {
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    member.program = plan({.resolution = group.graphs->resolution,
                           .lowered = group.graphs->lowered,
                           .variables = host_.variables(),
                           .communicator = *member.communicator,
                           .copy = group.members[0].device + 1,
                           .first_replica = placement_.first_replica(placement_.first_group()),
                           .first_resolved = placement_.first_replica(group.index),
                           .replicas_before = placement_.first_replica(group.index),
                           .all_reduce = all_reduce_,
                           .memory_limit = memory_limit(deployment_, static_cast<std::size_t>(member.device))});
  }
  void add_shard(ShardGraph& graph) {
    auto& shard = *shards_.emplace_back(std::make_unique<AsyncShard>());
    shard.variables = std::move(graph.variables);
    shard.bytes = graph.bytes;
    shard.device = static_cast<int>(shards_.size()) - 1;
    for (; shard.device >= placement_.devices_of(shard.owner); ++shard.owner) shard.device -= placement_.devices_of(shard.owner);
    std::map<std::uint32_t, TensorType> gradients;
    for (const auto& node : graph.update.nodes())
      if (const auto* input = node.get<Input>(); input && input->source == Input::Source::arrival) gradients.emplace(input->index, node.outputs[0]);
    shard.gradients.assign(gradients.begin(), gradients.end());
    if (shard.owner != placement_.process()) return;
    shard.resolution = resolve({&graph.update, 1}, host_.compiler().local_resolve_options());
    shard.lowered = host_.compiler().lower_classes(shard.resolution);
    shard.communicator = std::make_unique<ReplayCommunicator>(0, 1);
    shard.program = plan({.resolution = shard.resolution,
                          .lowered = shard.lowered,
                          .variables = host_.variables(),
                          .communicator = *shard.communicator,
                          .memory_limit = memory_limit(deployment_, static_cast<std::size_t>(shard.device))});
    shard.gate = std::make_unique<Shard>(placement_.groups(), deployment_.staleness, waiting());
  }

  static std::string who_waits(const AsyncPlacement& placement, int group) {
    return group < 0 ? "the program, which reads a variable," : placement.text(group);
  }
  Shard::Waiting waiting() const {
    const auto for_whom = [placement = placement_, bound = deployment_.staleness.value_or(0)](const Shard::Held& held) {
      const std::string who = held.holder < 0 ? "readers that copy variables" : placement.text(held.holder);
      if (!held.by_bound) return "for " + who + " at a shard of the variables";
      return "for " + who + ", whose gradient would be older than --staleness " + std::to_string(bound);
    };
    return {{deployment_.deadline, deployment_.late},
            [=, placement = placement_](int group, const Shard::Held& held) {
              std::fprintf(stderr, "replicator: %s waits %s\n", who_waits(placement, group).c_str(), for_whom(held).c_str());
            },
            [=, placement = placement_](int group, const Shard::Held& held) {
              throw CommunicationError{who_waits(placement, group) + " waited until the deadline " + for_whom(held) +
                                           ". It is stopped or slow: look there, or allow more time with --deadline",
                                       held.holder < 0 ? placement.process() : placement.process_of(held.holder)};
            }};
  }

  // The mirrored variables that steps of this process read.
  std::set<std::string> variables_read() const {
    std::set<std::string> names;
    for (const auto& group : groups_)
      for (const auto& one : group->graphs->resolution.classes)
        for (const auto& node : one.graph.nodes())
          if (const auto* read = node.get<Read>(); read && one.graph.variables()[read->variable].kind == VariableKind::mirrored)
            names.insert(one.graph.variables()[read->variable].name);
    return names;
  }

  Host& host_;
  const Deployment& deployment_;
  AsyncPlacement placement_;
  std::uint64_t seed_;
  collectives::AllReducePreference all_reduce_;  // inside groups
  AsyncResults results_;
  Resolution whole_;
  std::map<std::vector<Digest>, std::shared_ptr<const AsyncGraphs>> graphs_;
  std::vector<std::unique_ptr<AsyncGroup>> groups_;
  std::vector<std::unique_ptr<AsyncShard>> shards_;
  std::optional<AsyncCopies> copies_;
};

}  // namespace replicator::detail
