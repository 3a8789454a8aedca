// SPDX-License-Identifier: Apache-2.0
// A replicated step: what Replicator::replicate returns.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <replicator/graph/dot.hpp>
#include <replicator/replicate/engine.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/per_replica.hpp>
#include <replicator/replicate/replica_context.hpp>

namespace replicator {

namespace detail {

using Trace = std::function<void(ReplicaContext&, const std::vector<AnyTensor>&)>;

// Input and compiled programs of a step, without its types. Reads one element ahead, so that all replicas stop together.
class StepDriver {
 public:
  StepDriver(Engine& engine, int ordinal, std::vector<std::unique_ptr<InputSource>> inputs, Trace trace)
      : engine_{engine}, ordinal_{ordinal}, inputs_{std::move(inputs)}, trace_{std::move(trace)}, current_(inputs_.size()), next_(inputs_.size()),
        has_next_(std::make_unique<bool[]>(inputs_.size())) {
    for (std::size_t r = 0; r < inputs_.size(); ++r) {
      const auto recorded = inputs_[r]->recorded_from();
      if (recorded) done_ = *recorded;
      auto element = inputs_[r]->next();
      finished_ = !element;
      if (finished_ && recorded) return;
      if (!element) throw DataError{"the input of replica " + std::to_string(engine_.first_replica() + static_cast<int>(r)) + " is empty: give it at least one element"};
      current_[r] = std::move(*element);
    }
    compiled();
    trace_input_ = engine_.input_trace(inputs_.size());
  }

  bool finished() const { return finished_; }
  std::uint64_t steps_done() const { return done_; }
  std::string explain(const ExplainOptions& options) { return engine_.explain(compiled(), options); }
  std::string dot() { return replicator::dot(trace_all()); }
  std::string resolved_dot() { return engine_.resolved_dot(compiled()); }
  std::string plan_json() { return engine_.plan_json(compiled()); }

  StepResults run() {
    if (finished_) throw BuildError{"the input has ended after " + std::to_string(done_) + " steps: ask finished() before another step"};
    if (input_error_) {
      engine_.input_failed(input_error_);
      std::rethrow_exception(input_error_);
    }
    auto& step = compiled();
    read_ahead();
    auto results = engine_.run(step, current_, {has_next_.get(), inputs_.size()}, done_);
    ++done_;
    finished_ = !results.all_have_next;
    std::swap(current_, next_);
    return results;
  }

 private:
  // An error of the input is kept for the step that needs the element.
  void read_ahead() {
    for (std::size_t r = 0; r < inputs_.size(); ++r) {
      has_next_[r] = true;
      if (input_error_) continue;
      const auto began = trace_input_ ? trace_clock() : 0;
      try {
        auto element = inputs_[r]->next();
        has_next_[r] = element.has_value();
        if (element) next_[r] = std::move(*element);
      } catch (...) {
        input_error_ = std::current_exception();
      }
      if (trace_input_) trace_input_->record(engine_.first_replica() + static_cast<int>(r), done_ + 1, began, trace_clock());
    }
  }
  // The programs for the shapes of the current elements.
  CompiledStep& compiled() {
    Hasher hasher;
    for (const auto& element : current_)
      for (const auto& array : element) {
        hasher.word(static_cast<std::uint64_t>(array.dtype()));
        hasher.word(array.shape().rank());
        for (const auto extent : array.shape()) hasher.word(static_cast<std::uint64_t>(extent));
      }
    auto& step = plans_[hasher.result()];
    if (!step) step = engine_.compile(trace_all(), ordinal_);
    return *step;
  }
  std::vector<Graph> trace_all() {
    if (current_[0].empty()) throw BuildError{"no step was recorded of this replicated step: there is no input to trace it with"};
    std::vector<Graph> graphs;
    graphs.reserve(inputs_.size());
    for (std::size_t r = 0; r < inputs_.size(); ++r) {
      auto& graph = graphs.emplace_back(engine_.first_replica() + static_cast<int>(r), engine_.deployment().replicas,
                                          engine_.deployment().logical_devices);
      std::vector<AnyTensor> tensors;
      for (std::uint32_t i = 0; i < current_[r].size(); ++i)
        tensors.push_back(graph.tensor(graph.add({Input{Input::Source::element, i}, {}, {current_[r][i].type()}, {}, "input" + std::to_string(i)})));
      ReplicaContext context{graph};
      trace_(context, tensors);
    }
    return graphs;
  }

  Engine& engine_;
  int ordinal_;
  std::vector<std::unique_ptr<InputSource>> inputs_;
  Trace trace_;
  std::vector<std::vector<AnyArray>> current_, next_;
  std::unique_ptr<bool[]> has_next_;
  std::unordered_map<Digest, std::unique_ptr<CompiledStep>, DigestHash> plans_;
  std::shared_ptr<InputTrace> trace_input_;  // null: nobody asks
  std::exception_ptr input_error_;
  std::uint64_t done_ = 0;
  bool finished_ = false;
};

// What a step function returns, as a tuple of tensors.
template <class R>
struct StepResult {
  static constexpr bool valid = false;
};
template <>
struct StepResult<void> {
  static constexpr bool valid = true;
  using Arrays = std::tuple<>;
};
template <Element T>
struct StepResult<Tensor<T>> {
  static constexpr bool valid = true;
  using Arrays = std::tuple<Array<T>>;
  static std::vector<AnyTensor> tensors(const Tensor<T>& result) { return {result}; }
};
template <class R>
  requires std::derived_from<R, Tensor<typename R::element_type>> && (!std::same_as<R, Tensor<typename R::element_type>>)
struct StepResult<R> : StepResult<Tensor<typename R::element_type>> {};
template <class... T>
struct StepResult<std::tuple<T...>> {
  static constexpr bool valid = (StepResult<T>::valid && ...);
  using Arrays = decltype(std::tuple_cat(std::declval<typename StepResult<T>::Arrays>()...));
  static std::vector<AnyTensor> tensors(const std::tuple<T...>& result) {
    return std::apply([](const auto&... each) { return std::vector<AnyTensor>{AnyTensor(each)...}; }, result);
  }
};

}  // namespace detail

// The arrays that one step gives, one PerReplica for each tensor the step function returns.
template <class... A>
class Step {
 public:
  using Results = std::tuple<PerReplica<A>...>;

  explicit Step(std::unique_ptr<detail::StepDriver> driver, int replicas) : driver_{std::move(driver)}, replicas_{replicas} {}

  // Runs one step. Throws BuildError when the input has ended, what the input throws, CommunicationError when a device
  // or host is lost or late.
  Results step() { return unpack(driver_->run(), std::index_sequence_for<A...>{}); }
  // The input of some replica has ended: no replica takes another step.
  bool finished() const { return driver_->finished(); }
  std::uint64_t steps_done() const { return driver_->steps_done(); }
  // Of each device of this process's first replica. Per collective: where asked, bytes, schedule and why, bytes against a ring's, predicted and
  // (with --trace or --timing, once steps were timed) measured time. Then the nodes that cost most: operations, bytes, time and,
  // where the machine's figures are given or measured, the share of the roofline. Then memory.
  std::string explain(const ExplainOptions& options = {}) { return driver_->explain(options); }
  // The graphs of this host's replicas as traced, for Graphviz; equal ones are drawn once. Calls the step function again.
  std::string dot() { return driver_->dot(); }
  // The same after resolution: optimised, collectives in buckets, what runs once per device in grey.
  std::string resolved_dot() { return driver_->resolved_dot(); }
  // What each device of this process executes, as JSON: docs/plan.md.
  std::string plan_json() { return driver_->plan_json(); }

  // At most `count` steps, as an input range: each element is run when it is reached.
  //   for (auto [loss, top1] : train.steps(1000)) ...
  class Steps {
   public:
    class Iterator {
     public:
      using value_type = Results;
      using difference_type = std::ptrdiff_t;
      using iterator_concept = std::input_iterator_tag;

      Iterator() = default;
      Iterator(Step& owner, std::int64_t left) : owner_{&owner}, left_{left} { advance(); }
      const Results& operator*() const { return *current_; }
      Iterator& operator++() {
        advance();
        return *this;
      }
      void operator++(int) { advance(); }
      friend bool operator==(const Iterator& a, std::default_sentinel_t) { return !a.current_; }

     private:
      void advance() {
        current_.reset();
        if (left_-- > 0 && !owner_->finished()) current_.emplace(owner_->step());
      }
      Step* owner_ = nullptr;
      std::int64_t left_ = 0;
      std::optional<Results> current_;
    };
    Steps(Step& owner, std::int64_t count) : owner_{&owner}, count_{count} {}
    Iterator begin() const { return {*owner_, count_}; }
    std::default_sentinel_t end() const { return {}; }

   private:
    Step* owner_;
    std::int64_t count_;
  };
  Steps steps(std::int64_t count) { return {*this, count}; }

 private:
  template <std::size_t... I>
  Results unpack(StepResults results, std::index_sequence<I...>) {
    return {per_replica<A>(results, I)...};
  }
  template <class V>
  PerReplica<V> per_replica(StepResults& results, std::size_t k) {
    std::vector<V> values;
    for (auto& value : results.values[k]) values.emplace_back(std::move(value));
    return {std::move(values), results.first[k], replicas_};
  }

  std::unique_ptr<detail::StepDriver> driver_;
  int replicas_;
};

}  // namespace replicator
