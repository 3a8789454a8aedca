// SPDX-License-Identifier: Apache-2.0
// AsyncStep: the driver of a step in the asynchronous regime. It owns the programs, the workers and the connections to
// other processes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/async_peers.hpp>
#include <replicator/async/async_programs.hpp>
#include <replicator/async/async_report.hpp>
#include <replicator/async/async_workers.hpp>
#include <replicator/async/running_steps.hpp>
#include <replicator/engine/replica_inputs.hpp>
#include <replicator/engine/trace_step_function.hpp>
#include <replicator/graph/dot.hpp>

namespace replicator::detail {

class AsyncStep final : public StepDriver, private RunningStep {
 public:
  // `host`, `stop` and `running` outlive this object. All other steps must rest.
  AsyncStep(Host& host, StopAgreement& stop, RunningSteps& running, int ordinal, std::vector<std::unique_ptr<InputSource>> inputs, const Trace& trace)
      : host_{host}, stop_{stop}, running_steps_{running}, ordinal_{ordinal} {
    ReplicaInputs sources{std::move(inputs), host_.placement().begin()};
    std::vector<ReplicaInputs::Element> first;
    programs_ = host_.building().run([&] {
      for (std::size_t r = 0; r < sources.size(); ++r) first.push_back(sources.first(r, 0, host_.input_watch()));
      traced_ = trace_replicas(host_, first, trace);
      return std::make_unique<AsyncPrograms>(host_, traced_, ordinal);
    });
    host_.failure().told([&] {
      if (host_.job().size() > 1) peers_ = std::make_unique<AsyncPeers>(host_, *programs_, stop_, running_steps_, ordinal_);
      workers_ = std::make_unique<AsyncWorkers>(
          host_.deployment(), *programs_, peers_.get(), [this](const std::exception_ptr& error) { host_.failure().release_process(error); },
          AsyncElements{std::move(sources), std::move(first)});
    });
    running_steps_.add(*this);
  }
  ~AsyncStep() override {
    const bool unwinds = workers_ && workers_->leave_by_error();
    if (!running_steps_.remove(*this) && peers_) peers_->leave_variables();
    try {
      if (peers_ && !unwinds) running_steps_.pause();
    } catch (...) {  // host_.failure() has the error
    }
    if (workers_ && host_.failure()) workers_->error_was_thrown();
    if (workers_) end_workers(unwinds);
    try {
      stop_.end_barrier();
    } catch (const CommunicationError&) {  // the next call finds the error too
    }
  }

  StepResults run(Location where) override {
    require_outside_step();
    if (finished_) throw BuildError{"step at " + where.text() + ": the input has ended after " + std::to_string(done_) + " steps: ask finished() before another step"};
    host_.failure().answer();
    host_.failure().kept([this] {
      if (running_steps_.begin(*this)) programs_->copies().pull_unchanging();
      workers_->step(stop_.barriers());
      end_call();
    });
    ++done_;
    finished_ = workers_->ended();
    StepResults results;
    results.values = workers_->results();
    for (std::size_t k = 0; k < results.values.size(); ++k)
      results.first.push_back(programs_->results().travels(k) ? 0 : host_.placement().begin());
    results.all_have_next = !finished_;
    return results;
  }
  bool finished() const override { return finished_; }
  std::uint64_t steps_done() const override { return done_; }
  std::uint64_t steps_resumed() const override { return 0; }
  int stop_signal() override { return stop_.signal(); }
  std::string explain(const ExplainOptions& options) override { return explain_async(*programs_, host_.deployment(), workers_->steps(), options); }
  std::string dot() override { return replicator::detail::dot(traced_); }
  std::string resolved_dot() override { return replicator::detail::dot(programs_->whole()); }
  std::string plan_json() override {
    throw BuildError{"plan_json() was asked for with --regime async: plans tell of devices at the same step; explain() tells of this regime"};
  }

 private:
  // Waits until all processes have made their last step. If that fails, this process lacks the last values of
  // variables, so the host keeps the error.
  void end_workers(bool unwinds) {
    const auto error = workers_->end();
    if (error && peers_ && !unwinds && !host_.failure()) host_.failure().keep(error);
    workers_.reset();
  }
  void require_outside_step() const {
    if (workers_->within_step())
      throw BuildError{
          "a function of the Replicator or of a step was called from within a step, by a host_callback say, and would wait for it: call it "
          "when step() has returned"};
  }
  void end_call() {
    if (stop_.is_due()) {
      workers_->rest();
      peers_->agree_on_stop();
    }
    stop_.end_call();
  }
  // Throws after an error: the workers may continue for a while, so variables are not shown any more.
  void rest() override {
    require_outside_step();
    host_.failure().answer();
    host_.failure().kept([this] { workers_->rest(); });
  }
  void pause() override {
    host_.failure().kept([this] { workers_->pause(stop_.barriers()); });
  }
  void meet(bool latest, const char* why) override {
    if (peers_) host_.failure().kept([&] { peers_->meet(latest, why); });
  }
  const AnyArray* newest(const std::string& variable) override {
    if (!peers_) return nullptr;
    bool found = false;
    auto& seen = seen_[variable];
    host_.failure().kept([&] { found = peers_->fetch(variable, seen); });
    return found ? &seen : nullptr;
  }
  int ordinal() const override { return ordinal_; }
  bool is_left_by(int process) const override { return peers_ && peers_->has_left(process); }
  Host& host_;
  StopAgreement& stop_;
  RunningSteps& running_steps_;
  int ordinal_;  // the number of the step in its Replicator
  std::vector<Graph> traced_;
  std::unique_ptr<AsyncPrograms> programs_;
  std::map<std::string, AnyArray> seen_;   // by name: values of variables in shards that the program was given last
  std::unique_ptr<AsyncPeers> peers_;      // null if the job has one process
  std::unique_ptr<AsyncWorkers> workers_;  // the last member, because its threads use the others
  std::uint64_t done_ = 0;
  bool finished_ = false;
};

}  // namespace replicator::detail
