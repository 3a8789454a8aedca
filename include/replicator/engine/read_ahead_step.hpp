// SPDX-License-Identifier: Apache-2.0
// How a host drives a step: it reads one element ahead, so that all replicas stop together, and all processes know before a step
// whether they have programs for the shapes of all replicas' elements, or compile them together.
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
#include <replicator/engine/shape_numbers.hpp>
#include <replicator/graph/dot.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator {

class ReadAheadStep final : public StepDriver {
 public:
  // `host` outlives this.
  ReadAheadStep(Host& host, int ordinal, Resumption from, std::vector<std::unique_ptr<InputSource>> inputs, Trace trace)
      : host_{host}, ordinal_{ordinal}, from_{std::move(from)}, inputs_{std::move(inputs)}, watch_{host.deployment().late}, trace_{std::move(trace)}, current_(inputs_.size()),
        next_(inputs_.size()), shape_numbers_(inputs_.size()), upcoming_(inputs_.size()),
        key_(static_cast<std::size_t>(host_.deployment().replicas)), done_{from_.done}, finished_{from_.finished} {
    const bool any = host_.building().run([&] {
      // A step whose input has ended is traced by its last element.
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
  int stop_signal() override { return host_.stop_signal(); }
  std::string explain(const ExplainOptions& options) override { return host_.explain(latest(), options); }
  std::string dot() override { return replicator::dot(trace_all()); }
  std::string resolved_dot() override { return host_.resolved_dot(latest()); }
  std::string plan_json() override { return host_.plan_json(latest()); }

  StepResults run() override {
    host_.require_outside_step("step()");
    if (finished_) throw BuildError{"the input has ended after " + std::to_string(done_) + " steps: ask finished() before another step"};
    if (input_error_) {
      host_.failure().alone(input_error_);
      std::rethrow_exception(input_error_);
    }
    auto& step = compiled();
    read_ahead();
    auto results = host_.run(step, current_, upcoming_, all_have_next() ? std::span{next_} : std::span<std::vector<AnyArray>>{}, done_);
    ++done_;
    finished_ = !results.all_have_next;
    std::swap(current_, next_);
    // Where a replica has none, this was the last step; or this is a replay, which knows of one replica only.
    for (std::size_t r = 0; r < key_.size(); ++r)
      if (results.upcoming[r] != no_upcoming) key_[r] = shapes_of(results.upcoming[r]);
    return results;
  }

 private:
  std::optional<std::vector<AnyArray>> next(std::size_t r, std::uint64_t element) {
    return watch_.during(host_.placement().begin() + static_cast<int>(r), element, [&] { return inputs_[r]->next(); });
  }
  // Inputs that cannot seek are read in turn: they may share a source.
  void go_to(std::int64_t position) {
    std::vector<std::size_t> replayed;
    for (std::size_t r = 0; r < inputs_.size(); ++r)
      if (!inputs_[r]->seek(position)) replayed.push_back(r);
    if (replayed.empty()) return;
    if (host_.job().rank() == 0)
      std::fprintf(stderr, "replicator: the input of step %d cannot seek, so its first %lld elements are read again\n", ordinal_,
                   static_cast<long long>(position));
    for (std::int64_t i = 0; i < position; ++i)
      for (const auto r : replayed)
        if (!next(r, static_cast<std::uint64_t>(i))) throw no_element(r);
  }
  // False where there is none: a replay of a step of which nothing was recorded.
  bool read_first() {
    for (std::size_t r = 0; r < inputs_.size(); ++r) {
      const auto recorded = inputs_[r]->recorded_from();
      if (recorded) done_ = *recorded;
      auto element = next(r, done_);
      if (!element && recorded) {
        finished_ = true;
        return false;
      }
      if (!element) throw no_element(r);
      current_[r] = std::move(*element);
      shape_numbers_[r](current_[r]);
    }
    return true;
  }
  DataError no_element(std::size_t r) const {
    const auto input = "the input of replica " + std::to_string(host_.placement().begin() + static_cast<int>(r));
    if (from_.done == 0) return DataError{input + " is empty: give it at least one element"};
    return DataError{input + " has ended before element " + std::to_string(from_.done) +
                     ", where the checkpoint that is resumed goes on: it must give what it gave then"};
  }
  // An error of the input is kept for the step that needs the element.
  void read_ahead() {
    for (std::size_t r = 0; r < inputs_.size(); ++r) read_ahead(r);
    const int signal = StopOnSignal::received();
    for (auto& word : upcoming_) word = with_newcomer(with_stop_signal(word, signal), host_.newcomer_waits());
  }
  // Of this host.
  bool all_have_next() const {
    return !input_error_ && std::none_of(upcoming_.begin(), upcoming_.end(), [](auto word) { return without_signs(word) == no_upcoming; });
  }
  void read_ahead(std::size_t r) {
    upcoming_[r] = upcoming_with(0);
    if (input_error_) return;
    const auto began = trace_input_ ? trace_clock() : 0;
    try {
      auto element = next(r, done_ + 1);
      upcoming_[r] = element ? upcoming_with(shape_numbers_[r](*element)) : no_upcoming;
      if (element) next_[r] = std::move(*element);
    } catch (...) {
      input_error_ = std::current_exception();
    }
    if (trace_input_) trace_input_->record(host_.placement().begin() + static_cast<int>(r), done_ + 1, began, trace_clock());
  }
  // The programs for the shapes of the current elements of all replicas. The key is what all processes know: so all have them, or none.
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
                 "replicator: the elements of step %d had more than %zu sets of shapes. Programs are kept for the latest %zu, and compiled again for "
                 "others: bring elements to fewer shapes, by padding say\n",
                 ordinal_, KeptSteps::most, KeptSteps::most);
  }
  static BuildError nothing_recorded() {
    return BuildError{"no step was recorded of this replicated step: there is no input to trace it with"};
  }
  std::vector<Graph> trace_all() {
    if (current_[0].empty()) throw nothing_recorded();
    std::vector<Graph> graphs;
    graphs.reserve(inputs_.size());
    for (std::size_t r = 0; r < inputs_.size(); ++r) {
      auto& graph = graphs.emplace_back(host_.placement().begin() + static_cast<int>(r), host_.deployment().replicas,
                                          host_.deployment().logical_devices);
      std::vector<AnyTensor> tensors;
      for (std::uint32_t i = 0; i < current_[r].size(); ++i)
        tensors.push_back(graph.tensor(graph.add({Input{Input::Source::element, i}, {}, {current_[r][i].type()}, {}, "input" + std::to_string(i)})));
      ReplicaContext context{graph};
      trace_(context, tensors);
    }
    return graphs;
  }

  Host& host_;
  int ordinal_;
  Resumption from_;
  std::vector<std::unique_ptr<InputSource>> inputs_;
  InputWatch watch_;
  Trace trace_;
  std::vector<std::vector<AnyArray>> current_, next_;
  std::vector<ShapeNumbers> shape_numbers_;  // by replica of this host
  std::vector<std::uint64_t> upcoming_;      // by replica of this host
  KeptSteps::Key key_;                       // of the current elements
  KeptSteps kept_;
  bool told_dropped_ = false;
  std::shared_ptr<InputTrace> trace_input_;  // null: nobody asks
  std::exception_ptr input_error_;
  std::uint64_t done_;
  bool finished_;
};

}  // namespace replicator
