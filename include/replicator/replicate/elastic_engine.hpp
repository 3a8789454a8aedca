// SPDX-License-Identifier: Apache-2.0
// The engine of a job that goes on when it loses processes: those that are left go back to a moment that all remember, share all
// replicas among themselves, and do again what was done since.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/replicate/engine.hpp>
#include <replicator/replicate/host.hpp>
#include <replicator/replicate/read_ahead_step.hpp>
#include <replicator/replicate/snapshot.hpp>
#include <replicator/transport/elastic_job.hpp>
#include <replicator/transport/part.hpp>

namespace replicator {

// All processes make the same calls (steps, digests ...) in the same order; each call is numbered. Before a step every process takes a
// snapshot. Whoever has finished step n knows by its exchange that all have begun it, so have the snapshot before it: the latest
// snapshots of two processes differ by one step at most, and two are kept. After a loss all go back to the oldest of the latest ones. Whoever
// was further makes the calls since then once more, silently, beside those who make them for the first time.
//
//   process 0   S4 step4 S5 step5 ..       the latest of all are S5, S4: back to S4;
//   process 1   S4 step4 ..                process 0 does step 4 again, with 1, which never finished it, then step 5
class ElasticEngine final : public Engine {
 public:
  explicit ElasticEngine(Deployment deployment)
      : deployment_{std::move(deployment)}, elastic_{Host::environment(deployment_), Host::job_options(deployment_)}, job_{elastic_.job()} {
    const auto open = [this] { host_->open_checkpoints(); };
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
  int process() const override { return job_->rank(); }
  int processes() const override { return job_->size(); }

  InputContext input_context(int replica) const override { return host().input_context(replica); }
  std::unique_ptr<InputSource> recorded_input(int, std::span<const DType>) const override { return nullptr; }
  int next_ordinal(bool checkpointed) const override { return host().checkpoints().next_ordinal(checkpointed); }
  std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, MakeInputs inputs, Trace trace) override {
    const auto step = std::make_shared<Course>(Course{ordinal, std::move(inputs), std::move(trace)});
    courses_.push_back(step);
    const auto begin = [this, step, checkpointed] {
      step->from = host_->checkpoints().begin(step->ordinal, checkpointed);
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
  // A replicated step, on whatever host it is.
  struct Course {
    int ordinal;
    MakeInputs inputs;
    Trace trace;
    Resumption from{};                          // where it is
    std::unique_ptr<ReadAheadStep> compiled{};  // null: not on the present host
  };
  using Work = std::function<void()>;

  class ElasticStep final : public StepDriver {
   public:
    ElasticStep(ElasticEngine& engine, std::shared_ptr<Course> course)
        : engine_{engine}, course_{std::move(course)}, resumed_{course_->from.done} {}
    ~ElasticStep() override { engine_.finish(course_); }

    StepResults run() override {
      StepResults results;
      engine_.perform([&] { results = engine_.run(*course_); }, [&engine = engine_, course = course_] { engine.run(*course); });
      return results;
    }
    bool finished() const override { return course_->from.finished; }
    std::uint64_t steps_done() const override { return course_->from.done; }
    std::uint64_t steps_resumed() const override { return resumed_; }
    int stop_signal() override { return engine_.stop_signal(); }
    std::string explain(const ExplainOptions& options) override { return present().explain(options); }
    std::string dot() override { return present().dot(); }
    std::string resolved_dot() override { return present().resolved_dot(); }
    std::string plan_json() override { return present().plan_json(); }

   private:
    // One process alone may ask: so nothing is compiled.
    ReadAheadStep& present() const {
      if (!course_->compiled)
        throw BuildError{"this job has just lost a process, and its step is planned anew when it is run: ask again after the next step"};
      return *course_->compiled;
    }
    ElasticEngine& engine_;
    std::shared_ptr<Course> course_;
    std::uint64_t resumed_;
  };

  struct Moment {
    Snapshot snapshot;
    std::map<std::shared_ptr<Course>, Resumption> courses;  // where steps are
  };
  struct Call {
    std::uint64_t number;
    Work again;
  };

  const Host& host() const {
    if (!host_) throw CommunicationError{job_->failure(), job_->culprit()};
    return *host_;
  }

  // --- calls ---------------------------------------------------------------------------------------------------------------
  // Does what all processes do, as often as it takes. `again`: the same when what it gave is known already.
  void perform(const Work& work, const Work& again) {
    while (!attempt(work)) {
    }
    if (job_->size() > 1) calls_.push_back({next_, again});
    ++next_;
  }
  // False where a process was lost.
  bool attempt(const Work& work) {
    try {
      if (!host_) establish();
      at_ = next_;
      work();
      return true;
    } catch (const CommunicationError&) {
      if (!goes_on()) {
        ended_ = true;
        throw;
      }
    } catch (...) {
      ended_ = true;
      throw;
    }
    drop_host();
    return false;
  }
  bool goes_on() const { return !left_out_ && job_->aborted() && job_->culprit() >= 0 && job_->culprit() != job_->rank(); }

  StepResults run(Course& course) {
    remember();
    auto& step = compiled(course);
    auto results = step.run();
    course.from.done = step.steps_done();
    course.from.finished = step.finished();
    return results;
  }
  ReadAheadStep& compiled(Course& course) {
    if (!course.compiled)
      course.compiled = std::make_unique<ReadAheadStep>(*host_, course.ordinal, course.from, course.inputs(), course.trace);
    return *course.compiled;
  }
  // What the step function refers to may be gone from now on: so nobody may go back to where the step is needed. After the barrier
  // all have the snapshot.
  void finish(const std::shared_ptr<Course>& course) noexcept {
    if (ended_ || std::uncaught_exceptions() != exceptions_at_start_) return course->compiled.reset();
    const auto settle = [this] {
      remember();
      if (job_->size() > 1) job_->barrier("the end of a step");
    };
    try {
      perform(settle, settle);
    } catch (...) {  // the next call of the program finds it
    }
    course->compiled.reset();
  }
  void part() {
    drop_steps();
    host_->part();
  }

  // --- going back ----------------------------------------------------------------------------------------------------------
  // Alone there is nobody to lose.
  void remember() {
    if (job_->size() == 1) return;
    auto& moment = latest_.snapshot.call == at_ ? latest_ : previous_;
    host_->remember(moment.snapshot);
    moment.snapshot.call = at_;
    moment.courses.clear();
    for (const auto& weak : courses_)
      if (const auto course = weak.lock()) moment.courses[course] = course->from;
    if (&moment == &previous_) std::swap(latest_, previous_);
    std::erase_if(calls_, [this](const Call& call) { return call.number < previous_.snapshot.call; });
    std::erase_if(courses_, [](const auto& weak) { return weak.expired(); });
  }

  void drop_steps() {
    for (const auto& weak : courses_)
      if (const auto course = weak.lock()) course->compiled.reset();
  }
  void drop_host() {
    if (!host_) return;
    drop_steps();
    stop_signal();  // is kept
    if (job_->aborted()) host_->failure().keep(std::make_exception_ptr(CommunicationError{job_->failure(), job_->culprit()}));
    host_.reset();
  }

  // A host in the job as it is, at the moment to which all go back, and from there as far as this process was.
  void establish() {
    if (job_->aborted()) join_what_is_left();
    host_ = std::make_unique<Host>(deployment_, job_);
    go_back_to(oldest_of_latest());
    const auto calls = calls_;
    for (const auto& call : calls) {
      at_ = call.number;
      call.again();
    }
  }
  void join_what_is_left() {
    const auto why = job_->failure();
    left_out_ = true;  // unless it is taken in
    job_ = elastic_.after(*job_);
    left_out_ = false;
    if (job_->rank() == 0)
      std::fprintf(stderr, "replicator: %s; the %d process(es) that are left take over its replicas\n", why.c_str(), job_->size());
  }
  // Whoever knows that the job is to stop was told so by the last step that it did; the others learn it here, before that step.
  std::uint64_t oldest_of_latest() {
    static constexpr const char* what = "the moment to go back to";
    const std::uint64_t mine[] = {latest_.snapshot.call, static_cast<std::uint64_t>(stop_signal_)};
    const auto all = job_->exchange(std::as_bytes(std::span{mine}), what);
    std::uint64_t oldest = mine[0];
    for (int process = 0; process < job_->size(); ++process) {
      const auto& part = all[static_cast<std::size_t>(process)];
      transport::require_part(part.size() == sizeof mine, process, part.size(), what);
      std::uint64_t theirs[2] = {};
      std::memcpy(theirs, part.data(), sizeof theirs);
      oldest = std::min(oldest, theirs[0]);
      stop_signal_ = std::max(stop_signal_, static_cast<int>(theirs[1]));
    }
    return oldest;
  }
  void go_back_to(std::uint64_t call) {
    if (latest_.snapshot.call != call) latest_ = std::exchange(previous_, {});
    if (latest_.snapshot.call != call)
      throw BuildError{"the processes of this job have made different calls: all must run the same steps in the same order"};
    previous_ = {};
    previous_.snapshot.call = call;
    std::erase_if(calls_, [&](const Call& made) { return made.number < call; });
    if (call == 0) return;
    host_->recall(latest_.snapshot);
    for (const auto& [course, from] : latest_.courses) course->from = from;
  }

  Deployment deployment_;
  int exceptions_at_start_ = std::uncaught_exceptions();
  transport::ElasticJob elastic_;
  std::shared_ptr<transport::Job> job_;
  std::unique_ptr<Host> host_;
  bool ended_ = false, left_out_ = false;
  int stop_signal_ = 0;                         // of hosts before
  std::vector<std::weak_ptr<Course>> courses_;  // not gone yet
  Moment latest_, previous_;
  std::deque<Call> calls_;  // made since the previous moment
  std::uint64_t next_ = 0;  // the number of the call that the program makes next
  std::uint64_t at_ = 0;    // of the one that is being made, perhaps once more
};

}  // namespace replicator
