// SPDX-License-Identifier: Apache-2.0
// A step compiled for the asynchronous regime: a program for each group of replicas, and one for each shard of the variables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/resolve_async.hpp>
#include <replicator/collectives/run.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/replicate/async_placement.hpp>
#include <replicator/replicate/compare_processes.hpp>
#include <replicator/replicate/host.hpp>
#include <replicator/replicate/memory_limit.hpp>
#include <replicator/replicate/replay_communicator.hpp>
#include <replicator/runtime/device_threads.hpp>
#include <replicator/runtime/execute.hpp>
#include <replicator/runtime/planner.hpp>
#include <replicator/runtime/shard.hpp>
#include <replicator/transport/in_process.hpp>
#include <replicator/transport/part.hpp>

namespace replicator {

// One of the devices of a group, and the group's replicas on it.
struct AsyncMember {
  int device = 0;
  int first = 0;  // replica
  int count = 1;
  std::unique_ptr<collectives::Communicator> communicator;
  Program program;
};

// What groups whose replicas have equal graphs share.
struct AsyncGraphs {
  Resolution resolution;
  std::vector<LoweredGraph> lowered;
};

// Replicas that are synchronous with each other.
struct AsyncGroup {
  int index = 0;
  std::unique_ptr<transport::InProcessGroup> wire;
  std::shared_ptr<const AsyncGraphs> graphs;
  std::vector<AsyncMember> members;  // the first leads: it reads and updates variables for all
  std::vector<AnyArray> means;       // of the group's gradients, by ordinal: where the first member's program leaves them
};

// Variables that are always updated together. Their values are copy 0 of the VariableStore of the process that owns them; those that a group
// computes from are copy d + 1 of its own, d being its first device.
struct AsyncShard {
  std::vector<std::string> variables;
  std::vector<std::string> read;  // by the steps of some process
  std::vector<std::pair<std::uint32_t, TensorType>> gradients;  // that it takes, by ordinal
  std::int64_t bytes = 0;
  int owner = 0;   // process
  int device = 0;  // of that one, whose they are
  // Where this process owns it; else there is nothing.
  Resolution resolution;
  std::vector<LoweredGraph> lowered;
  std::unique_ptr<collectives::Communicator> communicator;
  Program program;
  std::unique_ptr<Shard> gate;
};

class AsyncPrograms {
 public:
  // `traced`: of this process's replicas. Every process of the job calls it. Throws as resolve_async does, and what compiling a step throws. `host`
  // outlives this.
  AsyncPrograms(Host& host, std::span<const Graph> traced, int ordinal)
      : host_{host}, deployment_{host.deployment()}, placement_{deployment_, host.placement(), host.job().rank()}, seed_{host.compiler().seed_of(ordinal)},
        all_reduce_{collectives::parse_all_reduce(deployment_.schedule, {placement_.devices_of_group(), 1})} {
    auto resolution = resolve_async(traced, placement_.devices_of_job(), host.compiler().resolve_options());
    results_ = resolution.results;
    host_.checkpoints().declare(host_.variables(), resolution.whole, ordinal);
    compare_steps(host_.job(), resolution.whole, host_.variables());
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    for (int g = 0; g < placement_.groups_here(); ++g) add_group(resolution, placement_.first_group() + g);
    for (auto& shard : resolution.shards) add_shard(shard);
    find_copies();
    whole_ = std::move(resolution.whole);
  }

  const Deployment& deployment() const { return deployment_; }
  const AsyncPlacement& placement() const { return placement_; }
  std::uint64_t seed() const { return seed_; }
  std::size_t results() const { return results_; }  // of the step function
  const Resolution& whole() const { return whole_; }
  std::vector<std::unique_ptr<AsyncGroup>>& groups() { return groups_; }  // of this process
  std::vector<std::unique_ptr<AsyncShard>>& shards() { return shards_; }  // of the job

  // The device's own values of the shard's variables, made what they are now.
  void pull(std::size_t shard, int device) const { copy(copies_[shard][static_cast<std::size_t>(device)]); }
  // The same of all variables that no shard has, for all devices.
  void pull_unchanging() const {
    for (const auto& device : copies_.back()) copy(device);
  }
  // Where the device has the values of the shard's variables that steps read, in the order of their names.
  std::vector<std::span<std::byte>> values_at(std::size_t shard, int device) const {
    std::vector<std::span<std::byte>> values;
    for (const auto& each : copies_[shard][static_cast<std::size_t>(device)]) values.push_back({each.to, each.bytes});
    return values;
  }
  // Of copy 0.
  std::span<std::byte> bytes_of(const std::string& variable) const {
    return {host_.variables().data(variable, 0), host_.variables().declaration(variable).type.bytes()};
  }
  // Makes an update of a shard of this process, for whoever has it to himself. `before`: updates that were made. A program's steps are counted as in
  // the synchronous regime: by gradients of all groups.
  void update(AsyncShard& shard, const std::vector<AnyArray>& gradients, std::int64_t before) const {
    execute(shard.program, {&gradients, 1},
            {.seed = seed_, .step = static_cast<std::uint64_t>(before) / static_cast<std::uint64_t>(placement_.groups()), .capture = deployment_.capture});
  }

  // --- results, by [result][replica of a group], for other processes: those that are small ----------------------------------------
  bool travels(std::size_t result) const { return result_type(result).bytes() <= ResultExchange::largest_result; }
  std::size_t result_bytes() const {  // of a group
    std::size_t sum = 0;
    for (std::size_t k = 0; k < results_; ++k)
      if (travels(k)) sum += result_type(k).bytes() * static_cast<std::size_t>(placement_.replicas_of_group());
    return sum;
  }
  std::vector<std::byte> pack_results(const std::vector<std::vector<AnyArray>>& results) const {
    std::vector<std::byte> packed;
    packed.reserve(result_bytes());
    for (std::size_t k = 0; k < results_; ++k)
      for (std::size_t r = 0; travels(k) && r < results[k].size(); ++r) {
        const auto bytes = results[k][r].bytes();
        packed.insert(packed.end(), bytes.begin(), bytes.end());
      }
    return packed;
  }
  std::vector<std::vector<AnyArray>> unpack_results(std::span<const std::byte> from) const {
    std::vector<std::vector<AnyArray>> results(results_);
    for (std::size_t k = 0; k < results_; ++k)
      for (int r = 0; travels(k) && r < placement_.replicas_of_group(); ++r) {
        auto& array = results[k].emplace_back(result_type(k));
        std::copy_n(from.begin(), array.size_bytes(), array.data());
        from = from.subspan(array.size_bytes());
      }
    return results;
  }

 private:
  const TensorType& result_type(std::size_t k) const { return groups_[0]->members[0].program.results[k][0].type(); }
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
    options.fuse_convolutions = deployment_.gpu_kernels.fuse_convolutions;
    return options;
  }
  std::vector<LoweredGraph> lowered(const Resolution& resolution) {
    std::vector<LoweredGraph> result;
    for (const auto& one : resolution.classes) result.push_back(lower(one, DeviceKind::cpu, host_.compiler().cache()));
    return result;
  }

  void add_group(const AsyncResolution& resolution, int index) {
    auto& group = *groups_.emplace_back(std::make_unique<AsyncGroup>());
    const int first = placement_.first_replica(index), count = placement_.replicas_of_group(), devices = placement_.devices_of_group();
    group.index = index;
    group.wire = std::make_unique<transport::InProcessGroup>(devices);
    const int before = placement_.first_replica(placement_.first_group());
    group.graphs = graphs_of(std::span{resolution.steps}.subspan(static_cast<std::size_t>(first - before), static_cast<std::size_t>(count)));
    const collectives::ReplicaBlocks blocks{count, devices};
    for (int rank = 0; rank < devices; ++rank) {
      auto& member = group.members.emplace_back();
      member.device = placement_.first_device(index) + rank;
      member.first = first + blocks.begin(rank);
      member.count = blocks.count(rank);
      member.communicator = collectives::make_communicator(transport::InProcess{*group.wire, rank}, blocks);
    }
    DeviceThreads threads{devices};
    threads.run([&](int rank) { plan_member(group, group.members[static_cast<std::size_t>(rank)]); },
                [&](const std::exception_ptr&) { group.wire->abort({"another device of the group failed", 0}); });
    auto& results = group.members[0].program.results;
    for (std::size_t k = results_; k < results.size(); ++k)
      group.means.push_back(AnyArray::borrow(results[k][0].type(), results[k][0].data(), nullptr));
  }
  std::shared_ptr<const AsyncGraphs> graphs_of(std::span<const Graph> steps) {
    std::vector<Digest> key;
    for (const auto& step : steps) key.push_back(digest_of(step));
    auto& known = graphs_[key];
    if (!known) {
      auto made = std::make_shared<AsyncGraphs>();
      made->resolution = resolve(steps, options());
      made->lowered = lowered(made->resolution);
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
    shard.resolution = resolve({&graph.update, 1}, options());
    shard.lowered = lowered(shard.resolution);
    shard.communicator = std::make_unique<ReplayCommunicator>(0, 1);
    shard.program = plan({.resolution = shard.resolution,
                          .lowered = shard.lowered,
                          .variables = host_.variables(),
                          .communicator = *shard.communicator,
                          .memory_limit = memory_limit(deployment_, static_cast<std::size_t>(shard.device))});
    shard.gate = std::make_unique<Shard>(placement_.groups(), deployment_.staleness, waiting());
  }

  static std::string who_waits(const AsyncPlacement& placement, int group) {
    return group < 0 ? "the program, that looks at a variable," : placement.text(group);
  }
  Shard::Waiting waiting() const {
    const auto for_whom = [placement = placement_, bound = deployment_.staleness.value_or(0)](const Shard::Held& held) {
      const std::string who = held.holder < 0 ? "others, who copy variables" : placement.text(held.holder);
      if (!held.by_bound) return "for " + who + " at a shard of the variables";
      return "for " + who + ", whose gradient would be older than --staleness " + std::to_string(bound);
    };
    return {deployment_.deadline, deployment_.late,
            [=, placement = placement_](int group, const Shard::Held& held) {
              std::fprintf(stderr, "replicator: %s waits %s\n", who_waits(placement, group).c_str(), for_whom(held).c_str());
            },
            [=, placement = placement_](int group, const Shard::Held& held) {
              throw CommunicationError{who_waits(placement, group) + " waited until the deadline " + for_whom(held) +
                                           ". It is stopped or slow: look there, or allow more time with --deadline",
                                       held.holder < 0 ? placement.process() : placement.process_of(held.holder)};
            }};
  }

  // Of what the steps read.
  void find_copies() {
    auto unchanging = variables_read();
    const auto read = read_by_job(unchanging);
    std::size_t at = 0;
    for (const auto& shard : shards_) {
      for (const auto& name : shard->variables) {
        unchanging.erase(name);
        if (read[at++] != std::byte{0}) shard->read.push_back(name);
      }
      add_copies(shard->read);
    }
    add_copies({unchanging.begin(), unchanging.end()});
  }
  // Of each variable of the shards: whether a process reads it, which `mine` are for this one.
  std::vector<std::byte> read_by_job(const std::set<std::string>& mine) const {
    std::vector<std::byte> read;
    for (const auto& shard : shards_)
      for (const auto& name : shard->variables) read.push_back(std::byte{mine.contains(name)});
    static constexpr const char* what = "the exchange of the variables that steps read";
    const auto all = host_.job().exchange(read, what);
    for (std::size_t p = 0; p < all.size(); ++p) {
      transport::require_part(all[p].size() == read.size(), static_cast<int>(p), all[p].size(), what);
      for (std::size_t i = 0; i < read.size(); ++i) read[i] |= all[p][i];
    }
    return read;
  }
  std::set<std::string> variables_read() const {
    std::set<std::string> names;
    for (const auto& group : groups_)
      for (const auto& one : group->graphs->resolution.classes)
        for (const auto& node : one.graph.nodes())
          if (const auto* read = node.get<Read>(); read && one.graph.variables()[read->variable].kind == VariableKind::mirrored)
            names.insert(one.graph.variables()[read->variable].name);
    return names;
  }
  void add_copies(const std::vector<std::string>& names) {
    auto& by_device = copies_.emplace_back();
    auto& variables = host_.variables();
    for (int device = 0; device < placement_.devices(); ++device) {
      auto& list = by_device.emplace_back();
      for (const auto& name : names)
        list.push_back({variables.data(name, 0), variables.data(name, device + 1), variables.declaration(name).type.bytes()});
    }
  }

  Host& host_;
  const Deployment& deployment_;
  AsyncPlacement placement_;
  std::uint64_t seed_;
  collectives::AllReducePreference all_reduce_;  // inside groups
  std::size_t results_ = 0;
  Resolution whole_;
  std::map<std::vector<Digest>, std::shared_ptr<const AsyncGraphs>> graphs_;
  std::vector<std::unique_ptr<AsyncGroup>> groups_;
  std::vector<std::unique_ptr<AsyncShard>> shards_;
  std::vector<std::vector<std::vector<Copy>>> copies_;  // by shard, by device; last those of variables without one
};

}  // namespace replicator
