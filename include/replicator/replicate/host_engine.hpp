// SPDX-License-Identifier: Apache-2.0
// The engine: devices and processes of this host, variables, compiled steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/sha256.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/replicate/all_variables.hpp>
#include <replicator/replicate/checkpoints.hpp>
#include <replicator/replicate/drift_check.hpp>
#include <replicator/replicate/engine.hpp>
#include <replicator/replicate/require_devices.hpp>
#include <replicator/replicate/fingerprint.hpp>
#include <replicator/replicate/host_transport.hpp>
#include <replicator/replicate/memory_limit.hpp>
#include <replicator/replicate/placement.hpp>
#include <replicator/replicate/read_ahead_step.hpp>
#include <replicator/replicate/replay.hpp>
#include <replicator/replicate/replay_communicator.hpp>
#include <replicator/replicate/replica_recorder.hpp>
#include <replicator/replicate/step_recorder.hpp>
#include <replicator/runtime/calibrate.hpp>
#include <replicator/runtime/device_threads.hpp>
#include <replicator/runtime/execute.hpp>
#include <replicator/runtime/explain.hpp>
#include <replicator/runtime/planner.hpp>
#include <replicator/transport/in_process.hpp>

namespace replicator {

struct HostStep final : CompiledStep {
  Resolution resolution;
  std::vector<LoweredGraph> lowered;
  std::vector<std::unique_ptr<Handoffs>> handoffs;  // by team; null where it has one device
  std::vector<Program> programs;  // by device
  std::vector<std::shared_ptr<DeviceTrace>> traces;  // by device; empty where nobody asks
  std::vector<std::unique_ptr<Watches>> watches;  // by device; empty where nobody looks on
  int ordinal = 0;
  std::uint64_t seed = 0;
};

class HostEngine final : public Engine {
 public:
  explicit HostEngine(Deployment deployment)
      : replay_{deployment.see.replay.empty() ? nullptr : std::make_shared<Replay>(deployment.see.replay)},
        deployment_{replay_ ? replay_->deployment(std::move(deployment)) : std::move(deployment)},
        job_{replay_ ? transport::ProcessEnvironment{} : transport::find_environment(), job_options(deployment_)},
        placement_{replay_ ? Placement::alone(replay_->replica(), replay_->replicas()) : Placement{job_, deployment_}},
        all_reduce_{collectives::parse_all_reduce(deployment_.schedule, placement_.grid())},
        variables_{deployment_.seed, placement_.teams(), placement_.end() - placement_.begin()},
        cache_{deployment_.threads_per_device},
        threads_{local_devices()},
        pool_{std::make_shared<data::WorkerPool>(deployment_.input_threads)},
        recorder_{deployment_, job_},
        checkpoints_{deployment_, job_, placement_} {
    cpu::self_test();
    require_devices(deployment_.devices);
    compare_experiments();
    checkpoints_.open();
    recorder_.begin();
    connect();
    listen();
  }

  const Deployment& deployment() const override { return deployment_; }
  int first_replica() const override { return placement_.begin(); }
  int end_replica() const override { return placement_.end(); }
  int process() const override { return job_.rank(); }
  int processes() const override { return job_.size(); }
  std::vector<std::string> variables() const override { return variables_.names(); }
  const VariableDeclaration& declaration(const std::string& name) const override { return variables_.declaration(name); }
  const AnyArray& value(const std::string& name, int local_replica) const override { return variables_.value(name, local_replica); }
  void set(const std::string& name, const AnyArray& value) override { variables_.set(name, value); }

  InputContext input_context(int replica) const override { return {replica, deployment_.replicas, deployment_.seed, pool_}; }

  std::unique_ptr<InputSource> recorded_input(int ordinal, std::span<const DType> components) const override {
    return replay_ ? replay_->input(ordinal, components) : nullptr;
  }

  int next_ordinal(bool checkpointed) const override { return checkpoints_.next_ordinal(checkpointed); }
  std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, std::vector<std::unique_ptr<InputSource>> inputs, Trace trace) override {
    return std::make_unique<ReadAheadStep>(*this, ordinal, checkpoints_.begin(ordinal, checkpointed), std::move(inputs), std::move(trace));
  }
  std::string save_checkpoint() override {
    answer_failure();
    std::string path;
    told([&] { path = checkpoints_.save(variables_); });
    return path;
  }

  std::unique_ptr<CompiledStep> compile(std::span<const Graph> traced, int ordinal) override {
    answer_failure();
    auto step = std::make_unique<HostStep>();
    step->ordinal = ordinal;
    step->seed = seed_of(ordinal);
    const auto common_to_all = [this](const std::set<Digest>& mine) { return common(mine); };
    const auto first_order = [this](const std::vector<std::uint32_t>& mine) { return order_of_first(mine); };
    told([&] {
      step->resolution = resolve(traced, {deployment_.bucket_bytes, common_to_all, placement_.devices_per_team(), {deployment_.recompute_bytes}, first_order});
      checkpoints_.declare(variables_, step->resolution, ordinal);
    });
    compare_steps(*step);
    told([&] {
      lower_classes(*step);
      make_handoffs(*step);
    });
    step->programs.resize(static_cast<std::size_t>(local_devices()));
    const auto collectives = static_cast<std::uint32_t>(step->resolution.buckets.size()) + 1;
    on_devices([&](int device) { step->programs[static_cast<std::size_t>(device)] = plan(plan_request(*step, device)); });
    next_collective_ += collectives;
    step->traces = recorder_.record(step->resolution, step->programs);
    step->watches = recorder_.watches(step->resolution, step->programs, step->traces);
    told([&] { recorder_.write_files(traced, step->resolution, view(*step)); });
    return step;
  }

  StepResults run(CompiledStep& compiled, std::span<const std::vector<AnyArray>> inputs, std::span<const bool> has_next,
                  std::uint64_t number) override {
    answer_failure();
    auto& step = static_cast<HostStep&>(compiled);
    if (checkpoints_.due(step.ordinal)) save_checkpoint();
    if (job_.size() > 1) job_.set_context("during step " + std::to_string(number));
    const StepMoment moment{step.ordinal, number, inputs, step.resolution, step.programs, variables_, placement_};
    tell([&](StepListener& listener) { listener.before(moment); });
    run_programs(step, moment, has_next);
    auto results = collect(step, has_next);
    tell([&](StepListener& listener) { listener.after(moment, results); });
    checkpoints_.done(step.ordinal, number + 1, !results.all_have_next);
    return results;
  }

  std::shared_ptr<InputTrace> input_trace(std::size_t replicas) override { return recorder_.record_input(replicas); }

  std::string digest() override {
    answer_failure();
    const AllVariables all{variables_, job_, placement_};
    Sha256 hash;
    all.for_each([&](const std::string& name, const VariableDeclaration& declaration, const auto& pieces) {
      hash.update(name + " " + declaration.type.text());
      for (const auto piece : pieces) hash.update(piece);
    });
    return hash.text();
  }

  void failed_alone(const std::exception_ptr& error) override {
    if (job_.size() == 1 || failure_) return;
    failure_ = error;
    release(error);
  }

  std::string resolved_dot(const CompiledStep& compiled) const override {
    return dot(static_cast<const HostStep&>(compiled).resolution, placement_.begin());
  }
  std::string plan_json(const CompiledStep& compiled) const override { return replicator::plan_json({plan_part(view(static_cast<const HostStep&>(compiled)))}); }

  std::string explain(const CompiledStep& compiled, ExplainOptions options) override {
    const auto& step = static_cast<const HostStep&>(compiled);
    std::string text;
    if (options.calibrate) {
      const cpu::KernelEnvironment environment{deployment_.threads_per_device};
      const bool measured = calibrate(cache_, device_name(0).kind, options.machine);
      text += limits_text(device_name(0).kind, options.machine, measured);
    }
    for (int device = 0; device < placement_.devices_per_team(); ++device) text += explain_device(step, static_cast<std::size_t>(device), options);
    return text;
  }

  ~HostEngine() override {
    communicators_.clear();
    if (failure_ || std::uncaught_exceptions() > 0) {
      recorder_.abandon();
      return;
    }
    recorder_.finish();
    try {
      job_.leave();
    } catch (...) {  // the others have failed: their error is theirs to tell
    }
  }

 private:
  static transport::JobOptions job_options(const Deployment& deployment) {
    transport::JobOptions options;
    options.exchange_deadline = deployment.deadline;
    return options;
  }
  static std::string explain_device(const HostStep& step, std::size_t device, const ExplainOptions& options) {
    const auto& program = step.programs[device];
    std::string text = replicator::explain(step.resolution, program, step.traces.empty() ? nullptr : step.traces[device].get(), options);
    std::size_t kernels = 0;
    for (const auto& instruction : program.code) kernels += instruction.kind == Instruction::Kind::run;
    text += std::to_string(step.resolution.classes.size()) + " different graph(s); device " + std::to_string(device) + " runs " + std::to_string(kernels) +
            " kernels for " + std::to_string(program.replica_ids.size()) + " replica(s)\n";
    return text + text_of(program.memory);
  }
  int local_devices() const { return static_cast<int>(deployment_.devices.size()); }
  const DeviceName& device_name(int device) const { return deployment_.devices[static_cast<std::size_t>(device)]; }

  // A communicator for each device of a team, with the same device of the other teams.
  void connect() {
    if (replay_) {
      communicators_.push_back(std::make_unique<ReplayCommunicator>(replay_->replica(), replay_->replicas()));
      return;
    }
    communicators_.resize(static_cast<std::size_t>(local_devices()));
    for (int place = 0; place < placement_.devices_per_team(); ++place) {
      auto made = job_.size() > 1 ? connect_hosts(deployment_.transport, job_, placement_.process_of_team(), placement_.blocks()) : connect_threads();
      for (std::size_t team = 0; team < made.size(); ++team)
        communicators_[team * static_cast<std::size_t>(placement_.devices_per_team()) + static_cast<std::size_t>(place)] = std::move(made[team]);
    }
  }
  std::vector<std::unique_ptr<collectives::Communicator>> connect_threads() {
    auto& group = groups_.emplace_back(std::make_unique<transport::InProcessGroup>(placement_.teams()));
    std::vector<std::unique_ptr<collectives::Communicator>> made;
    for (int team = 0; team < placement_.teams(); ++team)
      made.push_back(collectives::make_communicator(transport::InProcess{*group, team}, placement_.blocks()));
    return made;
  }

  void compare_experiments() {
    if (job_.size() == 1) return;
    std::string kinds;
    for (const auto& device : deployment_.devices) kinds += std::string{name_of(device.kind)};
    compare_fingerprints(job_, {{"the program", build_digest().text(), {}},
                                {"--replicas", std::to_string(deployment_.replicas), {}},
                                {"--logical-devices", std::to_string(deployment_.logical_devices), {}},
                                {"--seed", std::to_string(deployment_.seed), {}},
                                {"--threads-per-device", std::to_string(deployment_.threads_per_device), {}},
                                {"--bucket-bytes", std::to_string(deployment_.bucket_bytes), {}},
                                {"--schedule", deployment_.schedule, {}},
                                {"--recompute-bytes", std::to_string(deployment_.recompute_bytes), {}},
                                {"--trace, --plan and --skew", deployment_.see.gathered(), {}},
                                {"--check-drift", std::to_string(deployment_.see.check_drift), {}},
                                {"--checkpoint, --every and --resume", deployment_.checkpoint.gathered(), {}},
                                {"the kind of devices", std::string{name_of(deployment_.devices[0].kind)}, {}},
                                {"the instruction set", instruction_set(), {}}});
  }
  void compare_steps(const HostStep& step) {
    if (job_.size() == 1) return;
    Fingerprint fields;
    add_resolution(fields, step.resolution);
    for (const auto& name : variables_.names()) {
      const auto& declaration = variables_.declaration(name);
      if (declaration.kind != VariableKind::mirrored) continue;
      Hasher hasher;
      hasher.bytes(variables_.value(name, 0).bytes());
      fields.push_back({"the variable \"" + name + "\"", declaration.type.text() + " " + hasher.result().text(), {}});
    }
    compare_fingerprints(job_, fields);
  }
  std::set<Digest> common(const std::set<Digest>& mine) {
    if (job_.size() == 1) return mine;
    const std::vector<Digest> flat{mine.begin(), mine.end()};
    const auto all = job_.exchange(std::as_bytes(std::span{flat}), "the exchange of graphs");
    std::set<Digest> result = mine;
    for (const auto& bytes : all) {
      std::vector<Digest> theirs(bytes.size() / sizeof(Digest));
      if (!theirs.empty()) std::memcpy(theirs.data(), bytes.data(), theirs.size() * sizeof(Digest));
      const std::set<Digest> known{theirs.begin(), theirs.end()};
      std::erase_if(result, [&](const Digest& digest) { return !known.contains(digest); });
    }
    return result;
  }

  // That of process 0; where it has another number of collectives, the comparison of the steps is about to say so.
  std::vector<std::uint32_t> order_of_first(const std::vector<std::uint32_t>& mine) {
    if (job_.size() == 1) return mine;
    const auto all = job_.exchange(std::as_bytes(std::span{mine}), "the exchange of the order of collectives");
    std::vector<std::uint32_t> first(all[0].size() / sizeof(std::uint32_t));
    if (!first.empty()) std::memcpy(first.data(), all[0].data(), first.size() * sizeof(std::uint32_t));
    return first.size() == mine.size() ? first : mine;
  }

  void lower_classes(HostStep& step) {
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    for (const auto& one : step.resolution.classes) step.lowered.push_back(lower(one, deployment_.devices[0].kind, cache_));
  }

  void make_handoffs(HostStep& step) const {
    for (int team = 0; team < placement_.teams(); ++team) {
      const auto first = step.resolution.class_of.begin() + placement_.first_replica(team);
      const std::vector<std::uint32_t> class_of{first, first + placement_.replicas(team)};
      step.handoffs.push_back(placement_.devices_per_team() == 1 ? nullptr
                                                                 : std::make_unique<Handoffs>(placement_.devices_per_team(), step.resolution.classes,
                                                                                              step.lowered, class_of));
    }
  }
  PlanRequest plan_request(HostStep& step, int device) {
    const int team = placement_.team_of(device);
    return {step.resolution, step.lowered, variables_, *communicators_[static_cast<std::size_t>(device)],
            step.handoffs[static_cast<std::size_t>(team)].get(), placement_.place_of(device), placement_.devices_per_team(), team,
            placement_.begin(), next_collective_, job_.size() > 1, device_name(device).kind, device_name(device).index, all_reduce_,
            memory_limit(deployment_, static_cast<std::size_t>(device))};
  }

  PlanView view(const HostStep& step) const {
    return {job_.rank(), placement_.begin(), step.resolution, step.programs, recorder_.devices(), variables_};
  }

  void run_programs(HostStep& step, const StepMoment& moment, std::span<const bool> has_next) {
    try {
      on_devices([&](int device) {
        auto& program = step.programs[static_cast<std::size_t>(device)];
        const auto first = static_cast<std::size_t>(placement_.first_replica(placement_.team_of(device)));
        for (std::size_t r = 0; r < program.exchange.has_next.size(); ++r) program.exchange.has_next[r] = has_next[first + r];
        execute(program, moment.inputs.subspan(first, program.replica_ids.size()), {step.seed, moment.number, deployment_.deadline, step.watches.empty() ? nullptr : step.watches[static_cast<std::size_t>(device)].get()});
      });
    } catch (...) {
      for (const auto& listener : listeners_) listener->failed(moment, failure_);
      throw;
    }
  }
  void listen() {
    if (replay_) listeners_.push_back(replay_);
    if (const auto& record = deployment_.see.record)
      if (auto recorder = ReplicaRecorder::make(*record, deployment_, placement_)) listeners_.push_back(std::move(recorder));
    if (deployment_.see.check_drift > 0) listeners_.push_back(std::make_shared<DriftCheck>(deployment_.see.check_drift, job_, deployment_, placement_));
  }
  void tell(const std::function<void(StepListener&)>& what) {
    try {
      for (const auto& listener : listeners_) what(*listener);
    } catch (...) {
      failed_alone(std::current_exception());
      failure_ = std::current_exception();
      throw;
    }
  }
  // What may fail in this process alone: nobody may wait for it then. (What all processes compare, all refuse.)
  void told(const std::function<void()>& what) {
    try {
      what();
    } catch (...) {
      failed_alone(std::current_exception());
      throw;
    }
  }

  void on_devices(const std::function<void(int)>& work) {
    try {
      threads_.run(
          [&](int device) {
            const cpu::KernelEnvironment environment{deployment_.threads_per_device};
            work(device);
          },
          [this](const std::exception_ptr& error) { release(error); });
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }
  // A device failed: nobody may wait for it.
  void release(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError& failure) {
      for (auto& group : groups_) group->abort(failure);
      if (groups_.empty() && !job_.aborted()) job_.abort(failure.what(), placement_.process_of(failure.culprit()));
    } catch (const std::exception& failure) {
      release(failure.what());
    } catch (...) {
      release("an exception that is no std::exception");
    }
  }
  void release(const std::string& why) {
    const std::string text = job_.describe(job_.rank()) + " failed: " + why;
    for (auto& group : groups_) group->abort(CommunicationError{text, 0});
    if (groups_.empty()) job_.abort(text, job_.rank());
  }
  // After a failure there is only one answer.
  void answer_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  std::uint64_t seed_of(int ordinal) const {
    if (ordinal == 0) return deployment_.seed;
    Hasher hasher;
    hasher.word(deployment_.seed);
    hasher.word(static_cast<std::uint64_t>(ordinal));
    return hasher.result().low;
  }

  StepResults collect(HostStep& step, std::span<const bool> has_next) const {
    StepResults results;
    const auto& first = step.programs[0];
    results.all_have_next = std::all_of(has_next.begin(), has_next.end(), [](bool has) { return has; });
    for (std::size_t k = 0; k < first.results.size(); ++k) {
      auto& values = results.values.emplace_back();
      const bool exchanged = first.exchange.block != 0 && first.exchange.offsets[k] != 0;
      results.first.push_back(first.uniform_result[k] || exchanged ? 0 : placement_.begin());
      if (first.uniform_result[k]) values.assign(static_cast<std::size_t>(deployment_.replicas), first.results[k][0]);
      else if (exchanged) unpack_exchanged(step, k, values);
      else
        for (int device = 0; device < local_devices(); device += placement_.devices_per_team()) {
          const auto& own = step.programs[static_cast<std::size_t>(device)].results[k];
          values.insert(values.end(), own.begin(), own.end());
        }
    }
    if (first.exchange.block != 0)
      for (int replica = 0; replica < deployment_.replicas; ++replica) results.all_have_next = results.all_have_next && exchanged_block(step, replica)[0] != std::byte{0};
    return results;
  }
  static const std::byte* exchanged_block(HostStep& step, int replica) {
    const auto& exchange = step.programs[0].exchange;
    return step.programs[0].collectives[exchange.collective].collective->output() + static_cast<std::size_t>(replica) * exchange.block;
  }
  void unpack_exchanged(HostStep& step, std::size_t k, std::vector<AnyArray>& values) const {
    for (int replica = 0; replica < deployment_.replicas; ++replica) {
      auto& array = values.emplace_back(step.programs[0].results[k][0].type());
      std::memcpy(array.data(), exchanged_block(step, replica) + step.programs[0].exchange.offsets[k], array.size_bytes());
    }
  }

  std::shared_ptr<Replay> replay_;  // null where all replicas run
  Deployment deployment_;
  transport::Job job_;
  Placement placement_;
  collectives::AllReducePreference all_reduce_;
  VariableStore variables_;
  ExecutableCache cache_;
  std::vector<std::unique_ptr<transport::InProcessGroup>> groups_;  // by place in a team; none in a job of several processes
  std::vector<std::unique_ptr<collectives::Communicator>> communicators_;  // by device
  DeviceThreads threads_;
  std::shared_ptr<data::WorkerPool> pool_;
  StepRecorder recorder_;
  Checkpoints checkpoints_;
  std::vector<std::shared_ptr<StepListener>> listeners_;
  std::uint32_t next_collective_ = 0;
  std::exception_ptr failure_;
};

inline const bool host_engine_registered = [] {
  engine_slot.store([](Deployment deployment) -> std::unique_ptr<Engine> { return std::make_unique<HostEngine>(std::move(deployment)); });
  return true;
}();

}  // namespace replicator
