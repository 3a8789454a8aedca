// SPDX-License-Identifier: Apache-2.0
// ElasticEngine: the engine of a job that continues when it loses processes. The remaining ones go back to a common
// snapshot, divide all replicas among themselves, and repeat the calls since then. A process that rejoins gets a
// snapshot between two steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <replicator/elastic/call_history.hpp>
#include <replicator/elastic/restartable_steps.hpp>
#include <replicator/elastic/state_transfer.hpp>
#include <replicator/engine/compare_processes.hpp>
#include <replicator/engine/host.hpp>
#include <replicator/engine/read_ahead_step.hpp>
#include <replicator/job/elastic/job_sequence.hpp>
#include <replicator/replicate/engine.hpp>

namespace replicator::detail {

// The admission check for processes that rejoin a running job. It includes the program's own arguments, because a
// comparison of steps would find their differences too late. Throws BuildError for invalid devices.
inline transport::Admission admission_to(const Deployment& deployment) {
  deployment.devices_per_replica();
  auto fields = experiment_fingerprint(deployment);
  std::string arguments;
  for (const auto& argument : deployment.remaining) arguments += (arguments.empty() ? "" : " ") + argument;
  fields.push_back({"the arguments of the program", "\"" + arguments + "\"", {}});
  return {detail::pack(fields), [fields](const std::vector<std::byte>& theirs, const std::string& who) -> std::string {
            try {
              detail::require_same(detail::unpack(theirs, -1), fields, who, "the job that is at work");
              return {};
            } catch (const Error& error) {
              return error.what();
            } },
          [deployment](transport::Job& job) { compare_experiments(job, deployment); }};
}

// Rollback. All processes make the same calls (steps, digests ...) in the same order, and each call is numbered. Before
// a step every process takes a snapshot.
// - A process that has finished step n knows, from the exchange in it, that all have begun step n and so have the
//   snapshot before it. So the latest snapshots of two processes differ by at most one step, and two snapshots are
//   kept.
// - After a loss all processes go back to the newest snapshot that all of them have. A process that was further repeats
//   its later calls silently, together with the others, which make them for the first time.
//
//   process 0   S4 step4 S5 step5 ..       the latest of all are S5, S4: back to S4;
//   process 1   S4 step4 ..                process 0 does step 4 again, with 1, which never finished it, then step 5
//
// Rejoin. A process that rejoins makes its first calls alone, on all replicas, with the same bits as at the start of
// the job. Before its first run of a checkpointed step it waits for the others. They must be about to run that step,
// and must have the same replicated steps. It then receives their snapshot, and is a member from then on. All processes
// learn from the results of a step that a process waits outside.
//
//   processes 1, 2   .. step7   S8, handed over    meet   step8 ..
//   process 0        calls of its own, waits       meet   step8 ..
class ElasticEngine final : public Engine {
 public:
  explicit ElasticEngine(Deployment deployment)
      : deployment_{std::move(deployment)},
        environment_{Host::environment(deployment_)},
        elastic_{transport::open_job_sequence(environment_, Host::job_options(deployment_), admission_to(deployment_), deployment_.elastic_arbiter)},
        job_{elastic_->job()} {
    environment_.listener.reset();
    const auto open = [this] {
      if (!elastic_->outside()) host_->open_checkpoints();
    };
    perform(open, open);
  }
  ~ElasticEngine() override {
    try {
      if (std::uncaught_exceptions() == exceptions_at_start_ && !ended_) perform([this] { part(); }, {});
    } catch (...) {  // the program already has all results that it asked for
    }
    drop_host();
  }

  const Deployment& deployment() const override { return deployment_; }
  int first_replica() const override { return host().placement().begin(); }
  int end_replica() const override { return host().placement().end(); }
  int process() const override { return elastic_->outside() ? environment_.rank : job_->rank(); }
  int processes() const override { return elastic_->outside() ? environment_.world_size : job_->size(); }

  InputContext input_context(int replica) const override { return host().input_context(replica); }
  std::unique_ptr<InputSource> recorded_input(int, const std::vector<DType>&) const override { return nullptr; }
  int next_ordinal(bool checkpointed) const override { return host().checkpoints().next_ordinal(checkpointed); }
  std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, MakeInputs inputs, Trace trace) override {
    const auto step = restartables_.add({ordinal, checkpointed, std::move(inputs), std::move(trace)});
    const auto begin = [this, step] {
      step->from = host_->checkpoints().begin(step->ordinal, step->checkpointed);
      step->compiled.reset();
      compiled(*step);
    };
    perform(begin, begin);
    return std::make_unique<ElasticStep>(*this, step);
  }

  std::string digest() override {
    std::string text;
    perform([&] { text = host_->digest(); }, [this] { host_->digest(); });
    return text;
  }
  std::string save_checkpoint() override {
    std::string file;
    if (elastic_->outside()) return file;  // the others have written theirs
    perform([&] { file = host_->save_checkpoint(); }, [this] { host_->save_checkpoint(); });
    return file;
  }
  int stop_signal() override { return stop_signal_ = std::max(stop_signal_, host_ ? host_->stop_signal() : 0); }
  std::vector<std::string> variables() const override { return host().variables().names(); }
  const VariableDeclaration& declaration(const std::string& name) const override { return host().variables().declaration(name); }
  const AnyArray& value(const std::string& name, int local_replica) const override { return host().variables().value(name, local_replica); }
  // A replica may lie in another process when the job starts again from a snapshot, so a value of one cannot be set again there.
  void set(const std::string& name, const AnyArray& value, std::optional<int> local_replica, Location where) override {
    if (local_replica) throw BuildError{"an elastic job cannot set \"" + name + "\" of one replica, because replicas move between its processes: declare it mirrored with a first axis for the replicas, and set all of it"};
    perform([&] { host_->set(name, value, {}, where); }, [this, name, value, where] { host_->set(name, value, {}, where); });
  }

 private:
  using Work = CallHistory::Work;

  class ElasticStep final : public StepDriver {
   public:
    ElasticStep(ElasticEngine& engine, std::shared_ptr<RestartableStep> restartable) : engine_{engine}, restartable_{std::move(restartable)} {
      restartable_->resumed = restartable_->from.done;
    }
    ~ElasticStep() override { engine_.finish(restartable_); }

    StepResults run(Location where) override {
      StepResults results;
      engine_.perform([&] { results = engine_.run(*restartable_, where); }, [&engine = engine_, restartable = restartable_, where] { engine.run(*restartable, where); });
      return results;
    }
    bool finished() const override { return restartable_->from.finished; }
    std::uint64_t steps_done() const override { return restartable_->from.done; }
    std::uint64_t steps_resumed() const override { return restartable_->resumed; }
    Breaks breaks() const override { return restartable_->from.breaks; }
    int stop_signal() override { return engine_.stop_signal(); }
    std::string explain(const ExplainOptions& options) override { return present().explain(options); }
    std::string dot() override { return present().dot(); }
    std::string resolved_dot() override { return present().resolved_dot(); }
    std::string plan_json() override { return present().plan_json(); }

   private:
    // A single process may ask, so this compiles nothing: compiling is collective.
    ReadAheadStep& present() const {
      if (!restartable_->compiled)
        throw BuildError{
            "this job has just lost a process, or taken one in, and its step is planned anew when it is run: ask again after the next step"};
      return *restartable_->compiled;
    }
    ElasticEngine& engine_;
    std::shared_ptr<RestartableStep> restartable_;
  };

  struct Moved {};  // thrown when the job continues as a new one

  const Host& host() const {
    if (!host_) throw CommunicationError{job_->failure(), job_->culprit()};
    return *host_;
  }

  // --- calls ---------------------------------------------------------------------------------------------------------------
  // Makes a collective call, and makes it again whenever a process is lost or rejoins meanwhile. Throws other errors.
  // `again`: repeats the call after a rollback, and drops its result.
  void perform(const Work& work, const Work& again) {
    if (host_) host_->require_outside_step("a function of the Replicator");
    while (!attempt(work)) {
    }
    history_.end_call(again, job_->size() > 1);
  }
  // False if a process was lost or rejoined.
  bool attempt(const Work& work) {
    bool begun = false;
    try {
      if (!host_) establish();
      history_.begin_call();
      begun = true;
      work();
      return true;
    } catch (const Moved&) {
    } catch (const BuildError& error) {
      if (!send_back_newcomer(error.what())) {
        ended_ = ends(begun);
        throw;
      }
    } catch (const CommunicationError&) {
      if (!goes_on()) {
        ended_ = true;
        throw;
      }
    } catch (...) {
      ended_ = ends(begun);
      throw;
    }
    drop_host();
    return false;
  }
  // True if the error ends the whole job and not only the call that was `begun`: the processes do not all have the same
  // error.
  bool ends(bool begun) const { return !begun || host_->failure() || job_->aborted(); }
  bool goes_on() const { return !left_out_ && job_->aborted() && job_->culprit() >= 0 && job_->culprit() != job_->rank(); }

  StepResults run(RestartableStep& restartable, Location where) {
    if (elastic_->outside() && restartable.checkpointed) {
      history_.go_on_from(come_in(*elastic_, restartables_, restartable, deployment_.replicas));
      move();
    }
    const bool newcomer = std::exchange(newcomer_waits_, false) && restartable.checkpointed;
    remember(newcomer);
    if (newcomer && take_in(*elastic_, *job_, restartables_, restartable, history_.latest())) {
      part();
      move();
    }
    auto& step = compiled(restartable);
    auto results = step.run(where);
    restartable.from.done = step.steps_done();
    restartable.from.finished = step.finished();
    newcomer_waits_ = results.newcomer;
    if (std::exchange(newest_, -1) >= 0) elastic_->trust_newest();
    return results;
  }
  [[noreturn]] void move() {
    moved_ = true;
    throw Moved{};
  }
  // Takes a snapshot. A job of one process needs none unless a process rejoins.
  void remember(bool alone_too) {
    if (job_->size() > 1 || alone_too) history_.remember(*host_, restartables_);
  }
  ReadAheadStep& compiled(RestartableStep& restartable) {
    if (!restartable.compiled)
      restartable.compiled = std::make_unique<ReadAheadStep>(*host_, restartable.ordinal, restartable.from, host_->make_inputs(restartable.inputs), restartable.trace);
    return *restartable.compiled;
  }
  // The step function's captures may be destroyed from now on, so no process may go back to a point where the step is
  // needed. After the barrier all processes have a later snapshot.
  void finish(const std::shared_ptr<RestartableStep>& restartable) noexcept {
    restartable->gone = true;
    if (ended_ || std::uncaught_exceptions() != exceptions_at_start_) return restartable->compiled.reset();
    const auto settle = [this] {
      remember(false);
      if (job_->size() > 1) job_->barrier("the end of a step");
    };
    try {
      perform(settle, settle);
    } catch (...) {  // the next call of the program finds the error
    }
    restartable->compiled.reset();
  }
  void part() {
    restartables_.drop_compiled();
    host_->part();
  }

  // --- from job to job -----------------------------------------------------------------------------------------------------
  // Some differences between processes, in program or devices, show only when a step is planned. If all processes
  // refuse the first step with a process that has rejoined, the job continues without it.
  bool send_back_newcomer(const std::string& why) {
    if (newest_ < 0) return false;
    if (!job_->aborted()) job_->abort(job_->describe(newest_) + " came back to the job, but cannot take part in it: " + why, newest_);
    return goes_on();
  }

  void drop_host() {
    if (!host_) return;
    restartables_.drop_compiled();
    stop_signal();  // keeps the signal
    if (job_->aborted()) host_->failure().keep(std::make_exception_ptr(CommunicationError{job_->failure(), job_->culprit()}));
    host_.reset();
  }

  // Makes a host in the present job, restores the common snapshot, and repeats this process's later calls.
  void establish() {
    if (job_->aborted() || moved_) join_what_is_left();
    host_ = std::make_unique<Host>(elastic_->outside() ? deployment_outside() : deployment_, job_);
    if (!elastic_->outside()) host_->ask_for_newcomers([this] { return elastic_->somebody_waits(); });
    history_.go_back_to(oldest_moment(*job_, history_.latest().call, stop_signal_), *host_);
    history_.repeat();
  }
  void join_what_is_left() {
    const bool lost = job_->aborted();
    const auto why = job_->failure();
    const auto lost_one = job_;
    const int before = job_->size();
    left_out_ = true;  // until it is a member of the next job
    job_ = elastic_->after(*job_);
    left_out_ = moved_ = newcomer_waits_ = false;
    newest_ = elastic_->newest();
    if (lost && job_->rank() == 0 && job_->size() == before)
      std::fprintf(stderr, "replicator: %s; but all %d processes have met again, and go on\n", why.c_str(), before);
    else if (lost && job_->rank() == 0)
      std::fprintf(stderr, "replicator: %s%s; the %d process(es) that are left take over its replicas\n", why.c_str(), others_lost(*lost_one).c_str(), job_->size());
  }
  // The processes of the job before that are absent in the present one, without those that its failure names.
  std::string others_lost(const transport::Job& before) const {
    std::string text;
    for (int process = 0; process < before.size(); ++process) {
      const auto& one = before.process(process);
      const auto name = before.describe(process);
      const auto here = [&](int rank) { return job_->process(rank).pid == one.pid && job_->process(rank).host == one.host; };
      bool found = process == before.culprit() || before.failure().find(name) != std::string::npos;
      for (int rank = 0; rank < job_->size(); ++rank) found = found || here(rank);
      if (!found) text += "; " + name + " is lost too";
    }
    return text;
  }
  // The deployment of a process outside the job. Reports and topology are left out: the job has those files.
  Deployment deployment_outside() const {
    auto result = deployment_;
    result.schedule = "auto";
    result.topology.clear();
    result.see = {};
    return result;
  }

  Deployment deployment_;
  transport::ProcessEnvironment environment_;
  int exceptions_at_start_ = std::uncaught_exceptions();
  std::unique_ptr<transport::JobSequence> elastic_;
  std::shared_ptr<transport::Job> job_;
  std::unique_ptr<Host> host_;
  bool ended_ = false, left_out_ = false;
  bool moved_ = false;           // all processes have left the job for the next one
  bool newcomer_waits_ = false;  // known to all processes since the latest step
  int newest_ = -1;              // rank of a process that has rejoined and has not done a step since; -1: none
  int stop_signal_ = 0;          // of earlier hosts
  RestartableSteps restartables_;
  CallHistory history_;
};

inline const bool elastic_engine_registered = register_engine<ElasticEngine>(EngineKind::elastic);

}  // namespace replicator::detail
