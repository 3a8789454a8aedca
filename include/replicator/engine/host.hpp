// SPDX-License-Identifier: Apache-2.0
// Host: one process of the job, with its devices, their variables, and the compiled steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/sha256.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/engine/all_variables.hpp>
#include <replicator/engine/collective_task.hpp>
#include <replicator/engine/compare_processes.hpp>
#include <replicator/engine/failure.hpp>
#include <replicator/engine/find_topology.hpp>
#include <replicator/engine/host_communicators.hpp>
#include <replicator/engine/host_compiler.hpp>
#include <replicator/engine/host_devices.hpp>
#include <replicator/engine/host_sets.hpp>
#include <replicator/engine/host_step.hpp>
#include <replicator/engine/input_watch.hpp>
#include <replicator/engine/placement.hpp>
#include <replicator/engine/replay/replay.hpp>
#include <replicator/engine/replay/replica_recorder.hpp>
#include <replicator/engine/require_devices.hpp>
#include <replicator/engine/require_valid.hpp>
#include <replicator/engine/see/audit.hpp>
#include <replicator/engine/see/drift_check.hpp>
#include <replicator/engine/see/explain_device.hpp>
#include <replicator/engine/see/hang_report.hpp>
#include <replicator/engine/see/missed_steps.hpp>
#include <replicator/engine/see/step_reporter.hpp>
#include <replicator/engine/state/checkpoints.hpp>
#include <replicator/engine/state/snapshot.hpp>
#include <replicator/engine/step_listeners.hpp>
#include <replicator/job/etcd/etcd.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/replicate/input_context.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/stop_on_signal.hpp>
#include <replicator/runtime/execution_options.hpp>
#include <replicator/runtime/see/range_names.hpp>
#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

// **In a job of several processes all of them call the constructor, compile, run, digest and save_checkpoint, at the
// same time.**
class Host {
 public:
  // Meets the other processes, and reads the checkpoint if one is to be resumed.
  explicit Host(Deployment deployment) : Host{std::move(deployment), nullptr} { open_checkpoints(); }
  // Joins a job whose processes have already met, and have compared their experiments. Reads no checkpoint.
  Host(Deployment deployment, std::shared_ptr<transport::Job> job)
      : replay_{deployment.see.replay.empty() ? nullptr : std::make_shared<Replay>(deployment.see.replay)},
        deployment_{valid(replay_ ? replay_->deployment(std::move(deployment)) : std::move(deployment))},
        shared_job_{job ? std::move(job) : meet()},
        job_{*shared_job_},
        placement_{replay_ ? Placement::alone(replay_->replica(), replay_->replicas()) : Placement{job_, deployment_}},
        all_reduce_{collectives::parse_all_reduce(deployment_.schedule, placement_.grid())},
        variables_{deployment_.seed, copies_of_variables(), placement_.end() - placement_.begin(), placement_.begin(), staging_of(deployment_.devices)},
        pool_{std::make_shared<data::WorkerPool>(deployment_.input_threads)},
        reporter_{deployment_, job_},
        checkpoints_{deployment_, job_, placement_} {
    cpu::self_test();
    require_devices(deployment_.devices);
    const bool audits = deployment_.see.audit > 0 && Audit::possible(deployment_, job_, placement_);
    if (!deployment_.topology.empty() && !replay_)
      all_reduce_.topology = find_topology(job_, deployment_.topology, deployment_.transport, placement_.grid());
    if (!deployment_.link.empty() && !replay_) all_reduce_.topology = topology_of_link(deployment_.link, placement_.grid());
    reporter_.predict(all_reduce_.topology);
    reporter_.begin();
    if (replay_) communicators_.connect_replay(replay_->replica(), replay_->replicas(), deployment_.devices[0]);
    else communicators_.connect(job_, deployment_, placement_);
    if (audits) {
      communicators_.connect_second(job_, deployment_, placement_);
      audit_.emplace(deployment_, job_, placement_);
    }
    listen();
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  // Leaves the job, unless something has failed.
  ~Host() {
    if (parted_) return;
    communicators_.clear();
    if (failure_ || std::uncaught_exceptions() > 0) {
      reporter_.abandon();
      return;
    }
    try {
      part();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "replicator: %s had finished when the job failed: %s\n", job_.describe(job_.rank()).c_str(), error.what());
    }
  }
  // Leaves the job. Every step that this host compiled must be destroyed before. Throws CommunicationError if another
  // process fails meanwhile.
  void part() {
    communicators_.clear();
    reporter_.finish();
    job_.leave();
    parted_ = true;
  }
  // Checks the flags, and that each process gets a replica, before it waits for any other process. Throws BuildError.
  static transport::ProcessEnvironment environment(const Deployment& deployment) {
    require_valid(deployment);
    if (deployment.processes && deployment.elastic && deployment.processes->size() > 1)
      throw BuildError{"a job of processes that the program knows (MPI) was to be elastic: MPI takes no process back; leave --elastic out, or start the processes without MPI"};
    const auto found = deployment.processes ? transport::environment_of(*deployment.processes)
                                            : transport::find_environment({deployment.job_token_file, deployment.interface, deployment.connect_deadline, deployment.insecure, etcd_of(deployment)});
    if (deployment.replicas < found.world_size)
      throw BuildError{"the job has " + std::to_string(found.world_size) + " processes, but there are only " + std::to_string(deployment.replicas) +
                       " replica(s), and every process needs one: raise --replicas or start fewer processes"};
    return found;
  }
  // The addresses of an etcd, where --elastic-arbiter names one.
  static std::string etcd_of(const Deployment& deployment) {
    return transport::detail::Etcd::is_url(deployment.elastic_arbiter) ? deployment.elastic_arbiter : std::string{};
  }
  static transport::JobOptions job_options(const Deployment& deployment) {
    transport::JobOptions options;
    options.connect_deadline = deployment.connect_deadline;
    options.exchange_deadline = deployment.deadline;
    options.late = deployment.late;
    return options;
  }
  void open_checkpoints() { checkpoints_.open(); }
  // The function is called in every step; all processes learn its answer.
  void ask_for_newcomers(std::function<bool()> somebody_waits) { somebody_waits_ = std::move(somebody_waits); }
  bool newcomer_waits() const { return somebody_waits_ && somebody_waits_(); }

  const Deployment& deployment() const { return deployment_; }
  const transport::Job& job() const { return job_; }
  transport::Job& job() { return job_; }
  const Placement& placement() const { return placement_; }
  VariableStore& variables() { return variables_; }
  const VariableStore& variables() const { return variables_; }
  const std::shared_ptr<Replay>& replay() const { return replay_; }  // null where all replicas run
  Failure& failure() { return failure_; }
  const Failure& failure() const { return failure_; }
  // Steps are built as one collective task, from asking for their input to compile().
  CollectiveTask& building() { return building_; }
  std::vector<std::unique_ptr<InputSource>> make_inputs(const MakeInputs& make) {
    return building_.run([&] { return input_watch_.during_input_fn(make); });
  }
  // For the thread of the program.
  InputWatch& input_watch() { return input_watch_; }
  HostCompiler& compiler() { return compiler_; }
  // Throws BuildError for a replica that does not exist.
  InputContext input_context(int replica) const {
    if (replica < 0 || replica >= deployment_.replicas)
      throw BuildError{"the input context of replica " + std::to_string(replica) + " was asked for, but there are " +
                       std::to_string(deployment_.replicas) + " replicas: name one from 0 to " + std::to_string(deployment_.replicas - 1)};
    return {replica, deployment_.replicas, deployment_.seed, pool_};
  }
  // Throws BuildError if a step is running: `call`, made from a host_callback for instance, would wait for its own
  // step.
  void require_outside_step(const std::string& call) const {
    if (!devices_.busy()) return;
    throw BuildError{call + " was called from within a step (number " + std::to_string(running_number_) + " of step " + std::to_string(running_ordinal_) +
                     " of the Replicator), by a host_callback say, and would wait for it: call it when step() has returned"};
  }
  // Records when the input of these replicas is read; null without a trace.
  std::shared_ptr<InputTrace> input_trace(std::size_t replicas) { return reporter_.record_input(replicas); }
  // SHA-256 (hexadecimal) over name, type and bytes of every variable in the order of names.
  std::string digest() {
    failure_.answer();
    compare_sets("digest()");
    const AllVariables all{variables_, job_, placement_};
    Sha256 hash;
    all.for_each([&](const std::string& name, const VariableDeclaration& declaration, const auto& pieces) {
      hash.update(name + " " + declaration.type.text());
      for (const auto piece : pieces) hash.update(piece);
    });
    return hash.text();
  }
  const Checkpoints& checkpoints() const { return checkpoints_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  // Returns the name of the file; empty if no folder was given.
  std::string save_checkpoint() {
    failure_.answer();
    if (deployment_.checkpoint.folder.empty()) return {};
    compare_sets("save_checkpoint()");
    return failure_.told([&] { return checkpoints_.save(variables_); });
  }

  // Sets every copy of a variable on this host, or that of one replica. `where`: the line of the program.
  void set(const std::string& name, const AnyArray& value, std::optional<int> local_replica, Location where) {
    variables_.set(name, value, local_replica);
    if (job_.size() > 1 && variables_.declaration(name).kind == VariableKind::mirrored) sets_.add(name, value, where);
  }
  const HostSets& sets() const { return sets_; }

  // Collective: takes a snapshot of the present state, with the replica-local variables of all replicas.
  void remember(Snapshot& snapshot) {
    failure_.answer();
    snapshot.take(variables_, job_, placement_);
    snapshot.checkpoints = checkpoints_.memory();
  }
  // Restores a snapshot. Call it before any step is compiled.
  void recall(const Snapshot& snapshot) {
    snapshot.give(variables_, placement_);
    checkpoints_.recall(snapshot.checkpoints);
  }

  // Compiles the traced graphs of this host's replicas into programs, as part of building(). `ordinal`: the number of
  // the step in its Replicator.
  std::unique_ptr<HostStep> compile(std::span<const Graph> traced, int ordinal) {
    auto step = compiler_.compile(traced, ordinal, variables_, sets_, checkpoints_, audit_ ? &audit_->guests().variables() : nullptr);
    for (std::size_t device = 0; device < step->programs.size(); ++device)
      name_ranges(step->programs[device], step->resolution, deployment_.devices[device].kind);
    step->traces = reporter_.record(step->resolution, step->programs);
    step->watches = reporter_.watches(step->resolution, step->programs, step->traces);
    step->listing = hang_report_.list(ordinal, step->resolution, step->programs);
    if (step->second) step->second->listing = hang_report_.list(ordinal, step->resolution, step->second->programs);
    reporter_.write_files(traced, step->resolution, view(*step));
    return step;
  }

  // Runs one step.
  // - `inputs[r]`: the element of this host's replica r.
  // - `upcoming[r]`: a word about its element for the next step.
  // - `next[r]`: that element, or an empty span unless all are known. It must stay unchanged until the next step has
  //   begun.
  // - `where`: the line of the program that asks for it.
  StepResults run(HostStep& step, std::span<const std::vector<AnyArray>> inputs, std::span<const std::uint64_t> upcoming,
                  std::span<const std::vector<AnyArray>> next, std::uint64_t number, Location where) {
    failure_.answer();
    if (checkpoints_.due(step.ordinal)) save_checkpoint();
    if (job_.size() > 1) job_.begin("step", number, "", where, step.ordinal);
    const StepMoment moment{step.ordinal, number, inputs, step.resolution, step.programs, variables_, placement_};
    listeners_.before(moment);
    run_devices(step, moment, {upcoming, next});
    auto results = results_of(step, placement_, upcoming);
    if (results.sets_differ) compare_sets("step " + std::to_string(number));
    sets_.clear();
    listeners_.after(moment, results);
    checkpoints_.done(step.ordinal, number + 1, !results.all_have_next);
    stop_signal_ = std::max(stop_signal_, results.stop_signal);
    return results;
  }

  // The signal for which this job stops; 0: none. Processes learn of each other's signals in the step that begins after
  // the signal came. The value stays.
  int stop_signal() {
    if (job_.size() == 1) stop_signal_ = std::max(stop_signal_, StopOnSignal::received());
    return stop_signal_;
  }

  // The resolved graphs for Graphviz, and the programs of this process's devices as JSON.
  std::string resolved_dot(const HostStep& step) const { return dot(step.resolution, placement_.begin()); }
  std::string plan_json(const HostStep& step) const { return replicator::detail::plan_json({plan_part(view(step))}); }
  // Describes each device of the first team: its collectives, the most expensive nodes, its memory.
  std::string explain(const HostStep& step, ExplainOptions options) {
    std::string text;
    if (options.calibrate) {
      const cpu::KernelEnvironment environment{deployment_.threads_per_device};
      const auto kind = deployment_.devices[0].kind;
      const bool measured = calibrate(compiler_.cache(), kind, options.machine);
      text += limits_text(kind, options.machine, measured);
    }
    for (int device = 0; device < placement_.devices_per_team(); ++device) text += explain_device(step, static_cast<std::size_t>(device), options);
    return text;
  }

 private:
  static Deployment valid(Deployment deployment) {
    require_valid(deployment);
    return deployment;
  }
  // Null if there is no such support or no such kind of device; require_devices reports the latter.
  static const StagingSupport* staging_of(const std::vector<DeviceName>& devices) {
    const auto* support = device_support[static_cast<std::size_t>(devices[0].kind)].load();
    return support ? support->staging : nullptr;
  }
  // In the asynchronous regime there is one more copy, the first. The devices have copies of it.
  int copies_of_variables() const { return placement_.teams() + (deployment_.regime == Regime::asynchronous ? 1 : 0); }
  std::shared_ptr<transport::Job> meet() const {
    auto job = std::make_shared<transport::Job>(replay_ ? transport::ProcessEnvironment{} : environment(deployment_), job_options(deployment_));
    compare_experiments(*job, deployment_);
    return job;
  }

  void compare_sets(const std::string& before) {
    failure_.kept([&] { sets_.compare(job_, before); });
  }

  // --- running -------------------------------------------------------------------------------------------------------------
  // Data about the next step of this host's replicas.
  struct Upcoming {
    std::span<const std::uint64_t> words;
    std::span<const std::vector<AnyArray>> elements;  // may be empty
  };
  void run_devices(HostStep& step, const StepMoment& moment, const Upcoming& upcoming) {
    running_ordinal_ = step.ordinal;
    running_number_ = moment.number;
    try {
      if (audit_ && audit_->due(moment.number)) run_audited(step, moment, upcoming);
      else devices_.run([&](int device) { run_program(step, moment, upcoming, device, nullptr); });
    } catch (...) {
      listeners_.failed(moment);
      throw;
    }
  }
  void run_audited(HostStep& step, const StepMoment& moment, const Upcoming& upcoming) {
    const auto original = [&] {
      devices_.run([&](int device) { run_program(step, moment, upcoming, device, step.second->original_trails[static_cast<std::size_t>(device)]); });
    };
    const auto second = [&] {
      devices_.run([&](int device) { run_second(step, moment, upcoming, device); });
    };
    failure_.kept([&] { audit_->run(step, moment, upcoming.words, original, second, [&](const std::function<void(int)>& work) { devices_.run(work); }); });
  }
  // `trail`: null unless the step is audited.
  void run_program(HostStep& step, const StepMoment& moment, const Upcoming& upcoming, int device, const std::shared_ptr<Trail>& trail) {
    const auto index = static_cast<std::size_t>(device);
    Watch* watch = step.watches.empty() ? nullptr : step.watches[index].get();
    Watches both;
    if (trail) {
      if (watch) both.add(std::shared_ptr<Watch>{std::shared_ptr<Watch>{}, watch});
      both.add(trail);
      watch = &both;
    }
    auto options = options_of(step, moment, device);
    const auto first = static_cast<std::size_t>(placement_.first_replica(placement_.team_of(device)));
    const auto replicas = static_cast<std::size_t>(placement_.replicas(placement_.team_of(device)));
    if (!upcoming.elements.empty()) options.next = upcoming.elements.subspan(first, replicas);
    options.watch = watch;
    options.compiled = step.listing.number();
    execute(step.programs[index], moment.inputs.subspan(first, replicas), upcoming.words.subspan(first, replicas), options);
  }
  // Does the work of the team before the device's own.
  void run_second(HostStep& step, const StepMoment& moment, const Upcoming& upcoming, int device) {
    auto& second = *step.second;
    const auto index = static_cast<std::size_t>(device);
    auto options = options_of(step, moment, device);
    options.watch = second.trails[index].get();
    options.compiled = second.listing.number();
    options.rehearsal = true;
    const int team = placement_.team_of(device), rank = placement_.audited_by(team);
    const auto run = [&] {
      if (team == 0 && audit_->guests().here()) return execute(second.programs[index], second.guest_inputs, second.guest_words, options);
      const auto first = static_cast<std::size_t>(placement_.blocks().begin(rank) - placement_.begin()), replicas = static_cast<std::size_t>(placement_.blocks().count(rank));
      execute(second.programs[index], moment.inputs.subspan(first, replicas), upcoming.words.subspan(first, replicas), options);
    };
    try {
      run();
    } catch (const CommunicationError& error) {  // the team after its culprit did that one's work
      const int culprit = error.culprit();
      throw CommunicationError{error.what(), culprit < 0 || job_.aborted() ? culprit : (culprit + 1) % placement_.blocks().ranks()};
    }
  }
  // Runs a program. `words`: about the next elements of its replicas.
  static void execute(Program& program, InputStage::Inputs inputs, std::span<const std::uint64_t> words, const ExecutionOptions& options) {
    std::copy_n(words.begin(), program.exchange.upcoming.size(), program.exchange.upcoming.begin());
    replicator::detail::execute(program, inputs, options);
  }
  // For a program that `device` runs.
  ExecutionOptions options_of(const HostStep& step, const StepMoment& moment, int device) {
    return {.seed = step.seed,
            .step = moment.number,
            .deadline = deployment_.deadline,
            .late = deployment_.late,
            .tell_late = [this, device] { hang_report_.late(device); },
            .record = &hang_report_.record(device),
            .capture = deployment_.capture};
  }

  // --- seeing --------------------------------------------------------------------------------------------------------------
  void listen() {
    if (replay_) listeners_.add(replay_);
    if (const auto& record = deployment_.see.record)
      if (auto recorder = ReplicaRecorder::make(*record, deployment_, placement_)) listeners_.add(std::move(recorder));
    if (job_.rank() == 0 && MissedSteps::concerns(deployment_.see)) listeners_.add(std::make_shared<MissedSteps>(deployment_.see));
    if (const auto every = deployment_.see.check_drift; every > 0)
      listeners_.add(std::make_shared<DriftCheck>(every, job_, deployment_, placement_));
  }
  PlanView view(const HostStep& step) const {
    return {job_.rank(), placement_.begin(), step.resolution, step.programs, reporter_.devices(), variables_};
  }

  std::shared_ptr<Replay> replay_;  // null unless this is a replay
  Deployment deployment_;
  std::shared_ptr<transport::Job> shared_job_;
  transport::Job& job_;
  Placement placement_;
  collectives::AllReducePreference all_reduce_;
  VariableStore variables_;
  InputWatch input_watch_{deployment_.late};
  HangReport hang_report_{job_, placement_, deployment_, input_watch_};
  HostCommunicators communicators_;
  Failure failure_{job_, placement_, communicators_};
  CollectiveTask building_{job_, failure_};
  HostDevices devices_{deployment_, communicators_, hang_report_, failure_};
  HostCompiler compiler_{deployment_, job_, placement_, all_reduce_, communicators_, devices_, building_};
  std::shared_ptr<data::WorkerPool> pool_;
  StepReporter reporter_;
  Checkpoints checkpoints_;
  HostSets sets_;
  StepListeners listeners_{failure_};
  std::optional<Audit> audit_;  // empty without --audit
  std::function<bool()> somebody_waits_;
  int running_ordinal_ = 0;
  std::uint64_t running_number_ = 0;
  int stop_signal_ = 0;
  bool parted_ = false;
};

}  // namespace replicator::detail
