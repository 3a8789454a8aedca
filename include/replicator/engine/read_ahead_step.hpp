// SPDX-License-Identifier: Apache-2.0
// ReadAheadStep: the driver of a synchronous step.
// - It reads one element ahead, so that all replicas stop after the same step.
// - Before each step all processes know the shapes of all elements. So either all of them have compiled programs for
//   these shapes, or all compile together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/engine/host.hpp>
#include <replicator/engine/input_watch.hpp>
#include <replicator/engine/kept_steps.hpp>
#include <replicator/engine/replica_inputs.hpp>
#include <replicator/engine/shape_numbers.hpp>
#include <replicator/engine/trace_step_function.hpp>
#include <replicator/graph/dot.hpp>

namespace replicator::detail {

class ReadAheadStep final : public StepDriver {
 public:
  // `host` outlives this.
  ReadAheadStep(Host& host, int ordinal, Resumption from, std::vector<std::unique_ptr<InputSource>> inputs, Trace trace)
      : host_{host}, ordinal_{ordinal}, from_{std::move(from)}, inputs_{std::move(inputs), host.placement().begin()}, trace_{std::move(trace)}, current_(inputs_.size()), next_(inputs_.size()), shape_numbers_(inputs_.size()), upcoming_(inputs_.size()), key_(static_cast<std::size_t>(host_.deployment().replicas)), done_{from_.done}, finished_{from_.finished} {
    const bool any = host_.building().run([&] {
      // A step that has reached the end of its input is traced with its last element.
      if (done_ > 0) go_to(static_cast<std::int64_t>(finished_ ? done_ - 1 : done_));
      return read_first();
    });
    if (!any) return;
    compiled();
    trace_input_ = host_.input_trace(inputs_.size());
  }

  bool finished() const override { return finished_; }
  std::uint64_t steps_done() const override { return done_; }
  std::uint64_t steps_resumed() const override { return from_.done; }
  Breaks breaks() const override { return from_.breaks; }
  int stop_signal() override { return host_.stop_signal(); }
  std::string explain(const ExplainOptions& options) override { return host_.explain(latest(), options); }
  std::string dot() override { return replicator::detail::dot(trace_all()); }
  std::string resolved_dot() override { return host_.resolved_dot(latest()); }
  std::string plan_json() override { return host_.plan_json(latest()); }

  StepResults run(Location where) override {
    host_.require_outside_step("step()");
    if (finished_ && current_[0].empty())
      throw BuildError{"step at " + where.text() + ": no step was recorded of this replicated step, so a replay cannot run it: run it by steps(1), which a replay leaves out"};
    if (finished_) throw BuildError{"step at " + where.text() + ": the input has ended after " + std::to_string(done_) + " steps: ask finished() before another step"};
    if (input_error_) {
      host_.failure().alone(input_error_);
      std::rethrow_exception(input_error_);
    }
    auto& step = compiled();
    read_ahead();
    auto results = host_.run(step, current_, upcoming_, all_have_next() ? std::span{next_} : std::span<std::vector<AnyArray>>{}, done_, where);
    ++done_;
    finished_ = !results.all_have_next;
    std::swap(current_, next_);
    // A word is missing after the last step of a replica, and for all other replicas in a replay.
    for (std::size_t r = 0; r < key_.size(); ++r)
      if (results.upcoming[r] != no_upcoming) key_[r] = shapes_of(results.upcoming[r]);
    return results;
  }

 private:
  void go_to(std::int64_t position) {
    const auto others = inputs_.seek(position);
    if (others.empty()) return;
    if (host_.job().rank() == 0)
      std::fprintf(stderr, "replicator: the input of step %d cannot seek, so its first %lld elements are read again\n", ordinal_,
                   static_cast<long long>(position));
    inputs_.skip(others, position, host_.input_watch());
  }
  // Calls read(), which waits for this element. Throws CommunicationError if the other processes have given this one up
  // meanwhile.
  template <class Read>
  auto require_awaited(std::size_t r, std::uint64_t number, Read read) {
    const auto& job = host_.job();
    const bool awaited = !job.aborted();
    auto element = read();
    if (awaited && job.culprit() == job.rank())
      host_.failure().kept([&] {
        throw CommunicationError{job.failure() + "\n" + job.describe(job.rank()) + " waited for " + InputWatch::element_text(inputs_.replica(r), number) + " meanwhile", job.rank()};
      });
    return element;
  }
  // Returns false if there is no element: in a replay of a step that was not recorded.
  bool read_first() {
    for (std::size_t r = 0; r < inputs_.size(); ++r) {
      const auto recorded = inputs_.recorded_from(r);
      if (recorded) {
        done_ = *recorded;
        auto element = inputs_.next(r, done_, host_.input_watch());
        if (!element) {
          finished_ = true;
          return false;
        }
        current_[r] = std::move(*element);
      } else {
        current_[r] = require_awaited(r, done_, [&] { return inputs_.first(r, done_, host_.input_watch()); });
      }
      shape_numbers_[r](current_[r]);
    }
    return true;
  }
  // An error of the input is kept until the step that needs the element.
  void read_ahead() {
    for (std::size_t r = 0; r < inputs_.size(); ++r) read_ahead(r);
    const int signal = StopOnSignal::received();
    const auto sets = host_.sets().word();
    for (auto& word : upcoming_) word = with_newcomer(with_stop_signal(with_sets(word, sets), signal), host_.newcomer_waits());
  }
  // Of this host's replicas only.
  bool all_have_next() const {
    return !input_error_ && std::none_of(upcoming_.begin(), upcoming_.end(), [](auto word) { return without_signs(word) == no_upcoming; });
  }
  void read_ahead(std::size_t r) {
    upcoming_[r] = upcoming_with(0);
    if (input_error_) return;
    const auto began = trace_input_ ? trace_clock() : 0;
    try {
      auto element = require_awaited(r, done_ + 1, [&] { return inputs_.next(r, done_ + 1, host_.input_watch()); });
      upcoming_[r] = element ? upcoming_with(shape_numbers_[r](*element)) : no_upcoming;
      if (element) next_[r] = std::move(*element);
    } catch (...) {
      host_.failure().answer();
      input_error_ = std::current_exception();
    }
    if (trace_input_) trace_input_->record(inputs_.replica(r), done_ + 1, began, trace_clock());
  }
  // The programs for the shapes of the current elements of all replicas. All processes know the same key, so all have
  // the programs or none has.
  HostStep& compiled() {
    if (auto* kept = kept_.find(key_)) return *kept;
    if (kept_.make_room()) tell_dropped();
    return kept_.keep(key_, host_.building().run([&] { return host_.compile(trace_all(), ordinal_); }));
  }
  HostStep& latest() const {
    if (!kept_.latest()) throw nothing_recorded();
    return *kept_.latest();
  }
  void tell_dropped() {
    if (std::exchange(told_dropped_, true) || host_.job().rank() != 0) return;
    std::fprintf(stderr,
                 "replicator: the elements for call %d of replicate() had more than %zu sets of shapes. Programs are kept for the latest %zu, and compiled again for "
                 "others: bring elements to fewer shapes, by padding say\n",
                 ordinal_ + 1, KeptSteps::most, KeptSteps::most);
  }
  static BuildError nothing_recorded() {
    return BuildError{"no step was recorded of this replicated step: there is no input to trace it with"};
  }
  std::vector<Graph> trace_all() {
    if (current_[0].empty()) throw nothing_recorded();
    return trace_replicas(host_, current_, trace_);
  }

  Host& host_;
  int ordinal_;
  Resumption from_;
  ReplicaInputs inputs_;
  Trace trace_;
  std::vector<std::vector<AnyArray>> current_, next_;
  std::vector<ShapeNumbers> shape_numbers_;  // by replica of this host
  std::vector<std::uint64_t> upcoming_;      // by replica of this host
  KeptSteps::Key key_;                       // of the current elements
  KeptSteps kept_;
  bool told_dropped_ = false;
  std::shared_ptr<InputTrace> trace_input_;  // null without a trace
  std::exception_ptr input_error_;
  std::uint64_t done_;
  bool finished_;
};

}  // namespace replicator::detail
