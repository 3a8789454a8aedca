// SPDX-License-Identifier: Apache-2.0
// A replicated step: what Replicator::replicate returns.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/replicate/engine.hpp>
#include <replicator/replicate/per_replica.hpp>
#include <replicator/replicate/step_driver.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator {

namespace detail {

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
requires std::derived_from<R, Tensor<typename R::element_type>> &&(!std::same_as<R, Tensor<typename R::element_type>>)struct StepResult<R> : StepResult<Tensor<typename R::element_type>> {
};
template <class... T>
struct StepResult<std::tuple<T...>> {
  static constexpr bool valid = (StepResult<T>::valid && ...);
  using Arrays = decltype(std::tuple_cat(std::declval<typename StepResult<T>::Arrays>()...));
  static std::vector<AnyTensor> tensors(const std::tuple<T...>& result) {
    return std::apply([](const auto&... each) { return std::vector<AnyTensor>{AnyTensor(each)...}; }, result);
  }
};

// The compiler tells Returned in its first line.
template <class Returned>
constexpr bool require_results() {
  static_assert(StepResult<Returned>::valid, "replicator: step_fn must return a rp::Tensor, a std::tuple of them, or void; it returns what is Returned above");
  return StepResult<Returned>::valid;
}

}  // namespace detail

// The arrays that one step gives, one PerReplica for each tensor the step function returns. It may outlive its Replicator: devices, processes and
// variables are there until the last of both is gone. A step that was moved from throws BuildError.
template <class... A>
class Step {
 public:
  using Results = std::tuple<PerReplica<A>...>;

  // `engine` is what the driver refers to.
  Step(std::shared_ptr<detail::Engine> engine, std::unique_ptr<detail::StepDriver> driver, int replicas)
      : resumed_{driver->steps_resumed()}, replicas_{replicas}, held_{std::make_unique<Held>(std::move(engine), std::move(driver))} {}

  // Runs one step. Where the elements of any replica have shapes that no step had before, all processes compile programs for them: of the latest
  // 16 sets of shapes they are kept. Throws BuildError when the input has ended, what the input throws, CommunicationError when a device
  // or host is lost or late.
  Results step() {
    const auto before = driver().steps_resumed();
    auto results = driver().run();
    resumed_ += driver().steps_resumed() - before;
    return unpack(std::move(results), std::index_sequence_for<A...>{});
  }
  // The input of some replica has ended: no replica takes another step.
  bool finished() const { return driver().finished(); }
  // Those before the run was resumed counted.
  std::uint64_t steps_done() const { return driver().steps_done(); }
  // explain, resolved_dot and plan_json tell of the programs of the latest step (before the first: of those for the first elements).
  // Each may be called by one process alone.

  // Of each device of this process's first replica. Per collective: where asked, bytes, schedule and why, bytes against a ring's, predicted and
  // (with --trace or --timing, once steps were timed) measured time. Then the nodes that cost most: operations, bytes, time and,
  // where the machine's figures are given or measured, the share of the roofline. Then memory.
  std::string explain(const ExplainOptions& options = {}) { return driver().explain(options); }
  // The graphs of this host's replicas as traced, for Graphviz; equal ones are drawn once. Calls the step function again.
  std::string dot() { return driver().dot(); }
  // The same after resolution: optimised, collectives in buckets, what runs once per device in grey.
  std::string resolved_dot() { return driver().resolved_dot(); }
  // What each device of this process executes, as JSON: docs/plan.md.
  std::string plan_json() { return driver().plan_json(); }

  // At most `count` steps, as an input range: each element is run when it is reached. In a run that is resumed, steps that were done
  // before count as done, so the same program ends after the same steps: see steps_done(). They also end when the processes have agreed to
  // stop for a signal that a StopOnSignal caught.
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
        if (left_-- <= 0 || owner_->finished() || owner_->driver().stop_signal() != 0) return;
        current_.emplace(owner_->step());
        left_ -= owner_->take_resumed(left_);
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
  Steps steps(std::int64_t count) { return {*this, count - take_resumed(count)}; }

 private:
  // Of `count` steps, those that were done before.
  std::int64_t take_resumed(std::int64_t count) {
    const auto before = std::min(resumed_, static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
    resumed_ -= before;
    return static_cast<std::int64_t>(before);
  }
  template <std::size_t... I>
  Results unpack(detail::StepResults results, std::index_sequence<I...>) {
    return {per_replica<A>(results, I)...};
  }
  template <class V>
  PerReplica<V> per_replica(detail::StepResults& results, std::size_t k) {
    std::vector<V> values;
    for (auto& value : results.values[k]) values.emplace_back(std::move(value));
    return {std::move(values), results.first[k], replicas_};
  }

  struct Held {
    Held(std::shared_ptr<detail::Engine> of, std::unique_ptr<detail::StepDriver> by) : engine{std::move(of)}, driver{std::move(by)} {}
    std::shared_ptr<detail::Engine> engine;
    std::unique_ptr<detail::StepDriver> driver;  // goes first
  };
  detail::StepDriver& driver() const {
    if (!held_) throw BuildError{"this step was moved from: use the rp::Step that it was moved to"};
    return *held_->driver;
  }

  std::uint64_t resumed_;  // steps that no call of steps() has counted yet
  int replicas_;
  std::unique_ptr<Held> held_;  // null: moved from
};

}  // namespace replicator
