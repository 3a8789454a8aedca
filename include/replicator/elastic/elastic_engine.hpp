// SPDX-License-Identifier: Apache-2.0
// The engine of a job that goes on when it loses processes: those that are left go back to a moment that all remember, share all
// replicas among themselves, and do again what was done since. Processes that come back are given that moment at a step's border.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/elastic/call_history.hpp>
#include <replicator/elastic/rejoin.hpp>
#include <replicator/elastic/restartable_steps.hpp>
#include <replicator/engine/compare_processes.hpp>
#include <replicator/engine/host.hpp>
#include <replicator/engine/read_ahead_step.hpp>
#include <replicator/job/elastic/admission_server.hpp>
#include <replicator/job/elastic/elastic_job.hpp>
#include <replicator/replicate/engine.hpp>

namespace replicator::detail {

// Of processes that come back to a job. It is at work, so what comparing steps would find too late is looked at too: the program's own
// arguments. Throws BuildError for devices that cannot be.
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
            }
          }};
}

// All processes make the same calls (steps, digests ...) in the same order; each call is numbered. Before a step every process takes a
// snapshot. Whoever has finished step n knows by its exchange that all have begun it, so have the snapshot before it: the latest
// snapshots of two processes differ by one step at most, and two are kept. After a loss all go back to the oldest of the latest ones. Whoever
// was further makes the calls since then once more, silently, beside those who make them for the first time.
//
//   process 0   S4 step4 S5 step5 ..       the latest of all are S5, S4: back to S4;
//   process 1   S4 step4 ..                process 0 does step 4 again, with 1, which never finished it, then step 5
//
// A process that comes back makes its first calls alone, on all replicas: with the bits that they had when the job began. Its first run of a
// step that checkpoints know waits until the others are before a run of that step, and have made no other steps than it has. It is handed
// their snapshot; from then on it is one of them. Who waits outside is known to all by the results of a step.
//
//   processes 1, 2   .. step7   S8, handed over    meet   step8 ..
//   process 0        calls of its own, waits       meet   step8 ..
class ElasticEngine final : public Engine {
 public:
  explicit ElasticEngine(Deployment deployment)
      : deployment_{std::move(deployment)},
        environment_{Host::environment(deployment_)},
        elastic_{environment_, Host::job_options(deployment_), admission_to(deployment_)},
        job_{elastic_.job()} {
    environment_.listener.reset();
    const auto open = [this] {
      if (!elastic_.outside()) host_->open_checkpoints();
    };
    perform(open, open);
  }
  ~ElasticEngine() override {
    try {
      if (std::uncaught_exceptions() == exceptions_at_start_ && !ended_) perform([this] { part(); }, {});
    } catch (...) {  // what the program asked for it has had
    }
    drop_host();
  }

  const Deployment& deployment() const override { return deployment_; }
  int first_replica() const override { return host().placement().begin(); }
  int end_replica() const override { return host().placement().end(); }
  int process() const override { return elastic_.outside() ? environment_.rank : job_->rank(); }
  int processes() const override { return elastic_.outside() ? environment_.world_size : job_->size(); }

  InputContext input_context(int replica) const override { return host().input_context(replica); }
  std::unique_ptr<InputSource> recorded_input(int, std::span<const DType>) const override { return nullptr; }
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
    if (elastic_.outside()) return file;  // the others have written theirs
    perform([&] { file = host_->save_checkpoint(); }, [this] { host_->save_checkpoint(); });
    return file;
  }
  int stop_signal() override { return stop_signal_ = std::max(stop_signal_, host_ ? host_->stop_signal() : 0); }
  std::vector<std::string> variables() const override { return host().variables().names(); }
  const VariableDeclaration& declaration(const std::string& name) const override { return host().variables().declaration(name); }
  const AnyArray& value(const std::string& name, int local_replica) const override { return host().variables().value(name, local_replica); }
  void set(const std::string& name, const AnyArray& value) override {
    perform([&] { host_->variables().set(name, value); }, [this, name, value] { host_->variables().set(name, value); });
  }

 private:
  using Work = CallHistory::Work;

  class ElasticStep final : public StepDriver {
   public:
    ElasticStep(ElasticEngine& engine, std::shared_ptr<RestartableStep> restartable) : engine_{engine}, restartable_{std::move(restartable)} {
      restartable_->resumed = restartable_->from.done;
    }
    ~ElasticStep() override { engine_.finish(restartable_); }

    StepResults run() override {
      StepResults results;
      engine_.perform([&] { results = engine_.run(*restartable_); }, [&engine = engine_, restartable = restartable_] { engine.run(*restartable); });
      return results;
    }
    bool finished() const override { return restartable_->from.finished; }
    std::uint64_t steps_done() const override { return restartable_->from.done; }
    std::uint64_t steps_resumed() const override { return restartable_->resumed; }
    int stop_signal() override { return engine_.stop_signal(); }
    std::string explain(const ExplainOptions& options) override { return present().explain(options); }
    std::string dot() override { return present().dot(); }
    std::string resolved_dot() override { return present().resolved_dot(); }
    std::string plan_json() override { return present().plan_json(); }

   private:
    // One process alone may ask: so nothing is compiled.
    ReadAheadStep& present() const {
      if (!restartable_->compiled)
        throw BuildError{
            "this job has just lost a process, or taken one in, and its step is planned anew when it is run: ask again after the next step"};
      return *restartable_->compiled;
    }
    ElasticEngine& engine_;
    std::shared_ptr<RestartableStep> restartable_;
  };

  struct Moved {};  // thrown where the job goes on as another one

  const Host& host() const {
    if (!host_) throw CommunicationError{job_->failure(), job_->culprit()};
    return *host_;
  }

  // --- calls ---------------------------------------------------------------------------------------------------------------
  // Does what all processes do, as often as it takes. `again`: the same when what it gave is known already.
  void perform(const Work& work, const Work& again) {
    if (host_) host_->require_outside_step("a function of the Replicator");
    while (!attempt(work)) {
    }
    history_.end_call(again, job_->size() > 1);
  }
  // False where a process was lost, or came back.
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
  // What was thrown ends more than the call that was `begun`: not all processes found it alike.
  bool ends(bool begun) const { return !begun || host_->failure() || job_->aborted(); }
  bool goes_on() const { return !left_out_ && job_->aborted() && job_->culprit() >= 0 && job_->culprit() != job_->rank(); }

  StepResults run(RestartableStep& restartable) {
    if (elastic_.outside() && restartable.checkpointed) {
      history_.go_on_from(come_in(elastic_, restartables_, restartable, deployment_.replicas));
      move();
    }
    const bool newcomer = std::exchange(newcomer_waits_, false) && restartable.checkpointed;
    remember(newcomer);
    if (newcomer && take_in(elastic_, *job_, restartables_, restartable, history_.latest())) {
      part();
      move();
    }
    auto& step = compiled(restartable);
    auto results = step.run();
    restartable.from.done = step.steps_done();
    restartable.from.finished = step.finished();
    newcomer_waits_ = results.newcomer;
    if (std::exchange(newest_, -1) >= 0) elastic_.trust_newest();
    return results;
  }
  [[noreturn]] void move() {
    moved_ = true;
    throw Moved{};
  }
  // Alone there is nobody to lose.
  void remember(bool alone_too) {
    if (job_->size() > 1 || alone_too) history_.remember(*host_, restartables_);
  }
  ReadAheadStep& compiled(RestartableStep& restartable) {
    if (!restartable.compiled)
      restartable.compiled = std::make_unique<ReadAheadStep>(*host_, restartable.ordinal, restartable.from, host_->building().run(restartable.inputs), restartable.trace);
    return *restartable.compiled;
  }
  // What the step function refers to may be gone from now on: so nobody may go back to where the step is needed. After the barrier
  // all have the snapshot.
  void finish(const std::shared_ptr<RestartableStep>& restartable) noexcept {
    restartable->gone = true;
    if (ended_ || std::uncaught_exceptions() != exceptions_at_start_) return restartable->compiled.reset();
    const auto settle = [this] {
      remember(false);
      if (job_->size() > 1) job_->barrier("the end of a step");
    };
    try {
      perform(settle, settle);
    } catch (...) {  // the next call of the program finds it
    }
    restartable->compiled.reset();
  }
  void part() {
    restartables_.drop_compiled();
    host_->part();
  }

  // --- from job to job -----------------------------------------------------------------------------------------------------
  // What programs and devices have in common shows when a step is planned: where all refuse it in the first step with a process that
  // came back, they go on without that.
  bool send_back_newcomer(const std::string& why) {
    if (newest_ < 0) return false;
    if (!job_->aborted()) job_->abort(job_->describe(newest_) + " came back to the job, but cannot take part in it: " + why, newest_);
    return goes_on();
  }

  void drop_host() {
    if (!host_) return;
    restartables_.drop_compiled();
    stop_signal();  // is kept
    if (job_->aborted()) host_->failure().keep(std::make_exception_ptr(CommunicationError{job_->failure(), job_->culprit()}));
    host_.reset();
  }

  // A host in the job as it is, at the moment to which all go back, and from there as far as this process was.
  void establish() {
    if (job_->aborted() || moved_) join_what_is_left();
    host_ = std::make_unique<Host>(elastic_.outside() ? deployment_outside() : deployment_, job_);
    if (!elastic_.outside()) host_->ask_for_newcomers([this] { return elastic_.somebody_waits(); });
    history_.go_back_to(oldest_moment(*job_, history_.latest().call, stop_signal_), *host_);
    history_.repeat();
  }
  void join_what_is_left() {
    const bool lost = job_->aborted();
    const auto why = job_->failure();
    left_out_ = true;  // unless it is taken in
    job_ = elastic_.after(*job_);
    left_out_ = moved_ = newcomer_waits_ = false;
    newest_ = elastic_.newest();
    if (lost && job_->rank() == 0)
      std::fprintf(stderr, "replicator: %s; the %d process(es) that are left take over its replicas\n", why.c_str(), job_->size());
  }
  // Of a process that is alone for a while, and whose job has files of these.
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
  transport::ElasticJob elastic_;
  std::shared_ptr<transport::Job> job_;
  std::unique_ptr<Host> host_;
  bool ended_ = false, left_out_ = false;
  bool moved_ = false;           // all have left the job for another one
  bool newcomer_waits_ = false;  // all know it, since the latest step
  int newest_ = -1;              // rank of a process that came back and has done no step since; -1: none
  int stop_signal_ = 0;          // of hosts before
  RestartableSteps restartables_;
  CallHistory history_;
};

inline const bool elastic_engine_registered = register_engine<ElasticEngine>(EngineKind::elastic);

}  // namespace replicator::detail
