// SPDX-License-Identifier: Apache-2.0
// HostCompiler: compiles the traced graphs of this host's replicas into programs of its devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
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
#include <replicator/resolve/resolve.hpp>
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

  // `ordinal`: the number of the step in its Replicator. Declares the step's variables. Throws BuildError for every
  // mistake that the graphs or a comparison of the processes show, and for a step that needs more memory than there is.
  std::unique_ptr<HostStep> compile(std::span<const Graph> traced, int ordinal, VariableStore& variables, const HostSets& sets, Checkpoints& checkpoints) {
    auto step = std::make_unique<HostStep>();
    step->ordinal = ordinal;
    step->seed = seed_of(ordinal);
    step->resolution = resolve(traced, resolve_options());
    require_room_for_variables(step->resolution, deployment_);
    declare(step->resolution, ordinal, variables, sets, checkpoints);
    step->lowered = lower_classes(step->resolution);
    step->handoffs = make_handoffs(*step);
    // An error until here is found by the others before they wait for this process.
    if (communicators_.prepare_together()) building_.exchange({});
    plan_programs(*step, variables);
    if (deployment_.see.audit > 0) plan_second(*step, variables);
    return step;
  }

  // Gives the variables of a resolved step their first values. Throws BuildError if processes differ in the step or in
  // a value.
  void declare(const Resolution& resolution, int ordinal, VariableStore& variables, const HostSets& sets, Checkpoints& checkpoints) {
    checkpoints.declare(variables, resolution, ordinal);
    compare_steps(building_, resolution, variables, sets);
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
  std::vector<std::unique_ptr<Handoffs>> make_handoffs(const HostStep& step) const {
    const int devices = placement_.devices_per_team();
    std::vector<std::unique_ptr<Handoffs>> result;
    for (int team = 0; team < placement_.teams(); ++team) {
      auto& handoffs = result.emplace_back();
      if (devices == 1) continue;
      const auto first = step.resolution.class_of.begin() + placement_.first_replica(team);
      const std::vector<std::uint32_t> class_of{first, first + placement_.replicas(team)};
      handoffs = std::make_unique<Handoffs>(devices, step.resolution.classes, step.lowered, class_of, support_of(deployment_.devices[0].kind).staging);
    }
    return result;
  }
  void plan_programs(HostStep& step, VariableStore& variables) {
    step.programs.resize(static_cast<std::size_t>(devices_.count()));
    devices_.run([&](int device) { step.programs[static_cast<std::size_t>(device)] = plan(plan_request(step, variables, device, communicators_, step.handoffs[static_cast<std::size_t>(placement_.team_of(device))].get())); });
    count_collectives(step);
  }
  // Plans the work of each device for its auditor.
  void plan_second(HostStep& step, VariableStore& variables) {
    step.second = std::make_unique<SecondComputation>();
    auto& second = *step.second;
    second.handoffs = make_handoffs(step);
    second.programs.resize(step.programs.size());
    std::vector<int> audited(step.programs.size());  // by auditor
    for (int device = 0; device < devices_.count(); ++device) audited[static_cast<std::size_t>(placement_.auditor_of(device))] = device;
    devices_.run([&](int auditor) {
      const int device = audited[static_cast<std::size_t>(auditor)];
      auto* const handoffs = second.handoffs[static_cast<std::size_t>(placement_.team_of(device))].get();
      second.programs[static_cast<std::size_t>(device)] = plan(plan_request(step, variables, auditor, communicators_.second(), handoffs));
    });
    count_collectives(step);
    for (std::size_t device = 0; device < step.programs.size(); ++device) {
      second.trails.push_back(std::make_shared<Trail>(step.resolution, second.programs[device]));
      second.original_trails.push_back(std::make_shared<Trail>(step.resolution, step.programs[device]));
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
  std::uint32_t next_collective_ = 0;  // counted over all steps
};

}  // namespace replicator::detail
