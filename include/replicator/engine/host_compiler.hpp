// SPDX-License-Identifier: Apache-2.0
// HostCompiler: compiles the traced graphs of this host's replicas into programs of its devices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/engine/collective_task.hpp>
#include <replicator/engine/compare_processes.hpp>
#include <replicator/engine/host_communicators.hpp>
#include <replicator/engine/host_devices.hpp>
#include <replicator/engine/host_sets.hpp>
#include <replicator/engine/host_step.hpp>
#include <replicator/engine/memory_limit.hpp>
#include <replicator/engine/state/checkpoints.hpp>
#include <replicator/engine/unshared_variables.hpp>
#include <replicator/graph/fused_reduce.hpp>
#include <replicator/graph/rows.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/executable_cache.hpp>
#include <replicator/runtime/plan/plan_request.hpp>

namespace replicator::detail {

// Collective: all processes of a job compile the same steps in the same order.
class HostCompiler {
 public:
  // All arguments outlive this object.
  HostCompiler(const Deployment& deployment, transport::Job& job, const Placement& placement,
               const collectives::AllReducePreference& all_reduce, const HostCommunicators& communicators, HostDevices& devices,
               CollectiveTask& building)
      : deployment_{deployment}, job_{job}, placement_{placement}, all_reduce_{all_reduce}, communicators_{communicators}, devices_{devices}, building_{building}, cache_{deployment.threads_per_device, deployment.kernel_choice} {}

  // Declares the step's variables. Throws BuildError for a mistake in the graphs, for processes that differ, and where memory does
  // not suffice.
  // - `ordinal`: the number of the step in its Replicator.
  // - `guests`: holds the variables of other processes' replicas, whose steps are computed again here; null without --audit.
  std::unique_ptr<HostStep> compile(std::span<const Graph> traced, int ordinal, VariableStore& variables, const HostSets& sets, Checkpoints& checkpoints, VariableStore* guests) {
    auto step = std::make_unique<HostStep>();
    step->ordinal = ordinal;
    step->seed = seed_of(ordinal);
    step->resolution = resolve(traced, resolve_options());
    require_room_for_variables(step->resolution, deployment_);
    declare(step->resolution, ordinal, variables, sets, checkpoints);
    step->lowered = lower_classes(step->resolution);
    for (int team = 0; team < placement_.teams(); ++team) {
      const auto first = step->resolution.class_of.begin() + placement_.first_replica(team);
      step->handoffs.push_back(make_handoffs(*step, {first, first + placement_.replicas(team)}));
    }
    // An error until here is found by the others before they wait for this process.
    if (communicators_.prepare_together()) building_.exchange({});
    plan_programs(*step, variables);
    if (guests) plan_second(*step, traced, variables, *guests);
    return step;
  }

  // Gives the variables of a resolved step their first values. Throws BuildError if processes differ in the step or in
  // a value, and for moving averages that no step keeps. The first process warns on stderr where the step seems to misspell variables.
  void declare(const Resolution& resolution, int ordinal, VariableStore& variables, const HostSets& sets, Checkpoints& checkpoints) {
    const std::string warning = unshared_.add(resolution, variables);
    checkpoints.declare(variables, resolution, ordinal);
    compare_steps(building_, resolution, variables, sets);
    if (!warning.empty() && job_.rank() == 0) std::fprintf(stderr, "replicator: %s\n", warning.c_str());
  }
  // Chooses a kernel for each node of each class of equal graphs.
  std::vector<LoweredGraph> lower_classes(const Resolution& resolution) {
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    const auto& device = deployment_.devices[0];
    const auto& support = support_of(device.kind);
    if (!support.runs_on_host()) support.enter(device.index);  // a library chooses algorithms for the current GPU
    std::vector<LoweredGraph> lowered;
    for (const auto& one : resolution.classes) lowered.push_back(lower(one, device.kind, cache_));
    return lowered;
  }

  // The seed for the random numbers of step `ordinal`.
  std::uint64_t seed_of(int ordinal) const {
    if (ordinal == 0) return deployment_.seed;
    Hasher hasher;
    hasher.word(deployment_.seed);
    hasher.word(static_cast<std::uint64_t>(ordinal));
    return hasher.result().low;
  }
  // Options for graphs of this process alone.
  ResolveOptions local_resolve_options() const {
    ResolveOptions options;
    options.bucket_bytes = deployment_.bucket_bytes;
    options.recompute = {deployment_.recompute_bytes};
    options.fuse_convolutions = deployment_.kernel_choice.fuse_convolutions;
    options.kind = deployment_.devices[0].kind;
    options.fuse_rows.wanted = has_kernel(kernels<Rows>::slot, *options.kind);
    options.fuse_rows.column_sums = deployment_.threads_per_device == 1;
    options.fuse_reduces = has_kernel(kernels<FusedReduce>::slot, *options.kind);
    return options;
  }
  // Options for a step of all processes, with the exchanges that resolution needs.
  ResolveOptions resolve_options() {
    auto options = local_resolve_options();
    if (job_.size() > 1) options.compare_processes = [this](std::span<const Graph* const> graphs, std::span<const Digest> digests) { return compare_graphs(building_, graphs, digests); };
    options.common_to_processes = [this](const std::set<Digest>& mine) { return common_to_processes(building_, mine); };
    options.devices = placement_.devices_per_team();
    options.order_of_processes = [this](const std::vector<std::uint32_t>& mine) { return order_of_first_process(building_, mine); };
    options.latest_of_processes = [this](std::vector<std::uint32_t>& mine) { return latest_of_processes(building_, mine); };
    return options;
  }
  // The cache of kernels, which all steps share.
  ExecutableCache& cache() { return cache_; }

 private:
  // For a team whose replicas have these classes; null if it has one device.
  std::unique_ptr<Handoffs> make_handoffs(const HostStep& step, const std::vector<std::uint32_t>& class_of) const {
    const int devices = placement_.devices_per_team();
    if (devices == 1) return nullptr;
    return std::make_unique<Handoffs>(devices, step.resolution.classes, step.lowered, class_of, support_of(deployment_.devices[0].kind).staging);
  }
  void plan_programs(HostStep& step, VariableStore& variables) {
    step.programs.resize(static_cast<std::size_t>(devices_.count()));
    devices_.run([&](int device) { step.programs[static_cast<std::size_t>(device)] = plan(plan_request(step, variables, device, communicators_, step.handoffs[static_cast<std::size_t>(placement_.team_of(device))].get())); });
    count_collectives(step);
  }
  // Plans the work that each team repeats in audited steps. Throws BuildError if it belongs to another process whose
  // replicas have other graphs.
  void plan_second(HostStep& step, std::span<const Graph> traced, VariableStore& variables, VariableStore& guests) {
    step.second = std::make_unique<SecondComputation>();
    auto& second = *step.second;
    second.classes = audited_classes(step, traced);
    for (const auto& one : step.resolution.classes)
      for (const auto& variable : one.graph.variables())
        if (variable.kind == VariableKind::replica_local && guests_here()) guests.declare(variable);
    for (const auto& classes : second.classes) second.handoffs.push_back(make_handoffs(step, classes));
    second.programs.resize(step.programs.size());
    devices_.run([&](int device) {
      const auto team = static_cast<std::size_t>(placement_.team_of(device));
      auto request = plan_request(step, variables, device, communicators_.second(), second.handoffs[team].get());
      if (team == 0 && guests_here()) {
        request.guest_classes = second.classes[team];
        request.guests = &guests;
      }
      second.programs[static_cast<std::size_t>(device)] = plan(request);
    });
    count_collectives(step);
    for (std::size_t device = 0; device < step.programs.size(); ++device) {
      second.trails.push_back(std::make_shared<Trail>(step.resolution, second.programs[device]));
      second.original_trails.push_back(std::make_shared<Trail>(step.resolution, step.programs[device]));
    }
  }
  // True if the first team repeats the work of another process.
  bool guests_here() const { return placement_.process_of(placement_.audited_by(0)) != job_.rank(); }
  // By team: the classes of the replicas whose work it repeats.
  std::vector<std::vector<std::uint32_t>> audited_classes(const HostStep& step, std::span<const Graph> traced) {
    std::vector<Digest> mine;
    for (const auto& graph : traced) mine.push_back(digest_of(graph));
    std::vector<Digest> all;  // by replica of the job
    const auto parts = job_.size() > 1 ? building_.exchange(std::as_bytes(std::span{mine})) : std::vector<std::vector<std::byte>>{};
    for (int process = 0; process < static_cast<int>(parts.size()); ++process) {
      const auto& part = parts[static_cast<std::size_t>(process)];
      transport::require_contribution(part.size() == static_cast<std::size_t>(placement_.replicas_of(process)) * sizeof(Digest), process, part.size(), "the comparison of graphs for audits");
      all.resize(all.size() + part.size() / sizeof(Digest));
      std::memcpy(all.data() + all.size() - part.size() / sizeof(Digest), part.data(), part.size());
    }
    if (parts.empty()) all = mine;
    require_known(all);
    std::vector<std::vector<std::uint32_t>> result;
    for (int team = 0; team < placement_.teams(); ++team) {
      auto& classes = result.emplace_back();
      const int rank = placement_.audited_by(team);
      for (int replica = placement_.blocks().begin(rank); replica < placement_.blocks().end(rank); ++replica)
        classes.push_back(step.resolution.class_of[static_cast<std::size_t>(std::find(mine.begin(), mine.end(), all[static_cast<std::size_t>(replica)]) - mine.begin())]);
    }
    return result;
  }
  // Throws the same BuildError on every process if one of them has no replica like one whose work it would repeat.
  // `digests`: of the graphs of all replicas.
  void require_known(const std::vector<Digest>& digests) const {
    const auto& blocks = placement_.blocks();
    for (int rank = 0; rank < blocks.ranks(); ++rank) {
      const int process = placement_.process_of((rank + 1) % blocks.ranks());
      int first = 0;
      for (int before = 0; before < process; ++before) first += placement_.replicas_of(before);
      const auto begin = digests.begin() + first, end = begin + placement_.replicas_of(process);
      for (int replica = blocks.begin(rank); replica < blocks.end(rank); ++replica)
        if (std::find(begin, end, digests[static_cast<std::size_t>(replica)]) == end)
          throw BuildError{"--audit " + std::to_string(deployment_.see.audit) + ": " + job_.describe(process) + " would compute the step of replica " + std::to_string(replica) +
                           " again, but that step is not like the one of any replica there: let step_fn do the same for all replicas, place such replicas together "
                           "on one process, or leave --audit out"};
    }
  }
  void count_collectives(const HostStep& step) {
    next_collective_ += static_cast<std::uint32_t>(step.resolution.buckets.size()) + 1;  // one more, for the exchange of results
  }
  // The program that `device` runs with these communicators.
  PlanRequest plan_request(const HostStep& step, VariableStore& variables, int device, const HostCommunicators& communicators, Handoffs* handoffs) {
    const int team = placement_.team_of(device);
    const auto& name = deployment_.devices[static_cast<std::size_t>(device)];
    return {.resolution = step.resolution,
            .lowered = step.lowered,
            .variables = variables,
            .communicator = communicators[device],
            .device_communicator = communicators.on_devices(device),
            .through_host = communicators.through_host(),
            .handoffs = handoffs,
            .device = placement_.place_of(device),
            .devices = placement_.devices_per_team(),
            .copy = team,
            .first_replica = placement_.begin(),
            .first_resolved = placement_.begin(),
            .first_collective = next_collective_,
            .several_hosts = job_.size() > 1,
            .kind = name.kind,
            .index = name.index,
            .all_reduce = all_reduce_,
            .memory_limit = memory_limit(deployment_, static_cast<std::size_t>(device))};
  }

  const Deployment& deployment_;
  transport::Job& job_;
  const Placement& placement_;
  const collectives::AllReducePreference& all_reduce_;
  const HostCommunicators& communicators_;
  HostDevices& devices_;
  CollectiveTask& building_;
  ExecutableCache cache_;
  UnsharedVariables unshared_;
  std::uint32_t next_collective_ = 0;  // counted over all steps
};

}  // namespace replicator::detail
