// SPDX-License-Identifier: Apache-2.0
// Step: a replicated step, the result of Replicator::replicate. It runs one step at a time or as a range.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/replicate/engine.hpp>
#include <replicator/replicate/per_replica.hpp>
#include <replicator/replicate/resumed_steps.hpp>
#include <replicator/replicate/step_driver.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator {

namespace detail {

// The return value of a step function, as a list of tensors.
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

// The compiler's first line of the error shows Returned.
template <class Returned>
constexpr bool require_results() {
  static_assert(StepResult<Returned>::valid, "replicator: step_fn must return a rp::Tensor, a std::tuple of them, or void; it returns what is Returned above");
  return StepResult<Returned>::valid;
}

template <class = void>
[[noreturn]] void refuse_moved_step() {
  throw BuildError{"this step was moved from: use the rp::Step that it was moved to"};
}

}  // namespace detail

// `A...` are the arrays of one step: one PerReplica<A> for each tensor that the step function returns. A Step may
// outlive its Replicator: devices, processes and variables live until both are gone. A step that was moved from throws
// BuildError.
template <class... A>
class Step {
 public:
  using Results = std::tuple<PerReplica<A>...>;

  // `driver` refers to `engine`, so the step shares its ownership.
  Step(std::shared_ptr<detail::Engine> engine, std::unique_ptr<detail::StepDriver> driver, bool checkpointed, int replicas)
      : replicas_{replicas}, held_{std::make_unique<Held>(std::move(engine), std::move(driver), checkpointed)} {}

  // Runs one step. If the elements of any replica have new shapes, all processes first compile programs for them. The
  // programs of the latest 16 sets of shapes are kept. Throws BuildError when the input has ended, CommunicationError
  // when a device or process is lost or late, or ended after fewer steps, and any error of the input.
  Results step(std::source_location where = std::source_location::current()) {
    auto results = held().resumed.run(where);
    return unpack(results, std::index_sequence_for<A...>{});
  }
  // True once the input of some replica has ended: no replica makes another step.
  bool finished() const { return driver().finished(); }
  // Steps done so far, including those before the run was resumed.
  std::uint64_t steps_done() const { return driver().steps_done(); }
  // explain, resolved_dot and plan_json describe the programs of the latest step. Before the first step, they describe
  // the programs for the first elements. A single process may call them.

  // Describes each device of this process's first replica, in three parts:
  // - Collectives: source line, bytes, schedule and its reason, bytes compared with a ring, and predicted time. Steps
  //   that were timed (--trace or --timing) add the measured time.
  // - The most expensive nodes: operation, bytes, time. Where the machine's limits are given or measured, the share of
  //   the roofline.
  // - Memory.
  std::string explain(const ExplainOptions& options = {}) { return driver().explain(options); }
  // The graphs of this host's replicas as traced, for Graphviz. Equal graphs are drawn once. Calls the step function
  // again.
  std::string dot() { return driver().dot(); }
  // The graphs after resolution: optimised, collectives in buckets. Nodes that run once per device are grey.
  std::string resolved_dot() { return driver().resolved_dot(); }
  // The programs of this process's devices, as JSON: docs/plan.md.
  std::string plan_json() { return driver().plan_json(); }

  // At most `count` steps, as an input range that runs a step when its element is reached. In a resumed run the earlier
  // steps count too, so the same program ends after the same steps: see steps_done(). What is asked for in the body of
  // another step's loop is new, and counts no earlier steps. The range also ends once the processes have agreed to stop for a
  // signal that a StopOnSignal caught.
  //   for (auto [loss, top1] : train.steps(1000)) ...
  class Steps {
   public:
    class Iterator {
     public:
      using value_type = Results;
      using difference_type = std::ptrdiff_t;
      using iterator_concept = std::input_iterator_tag;

      Iterator() = default;
      Iterator(Step& owner, std::int64_t left, std::source_location where) : owner_{&owner}, left_{left}, where_{where} { advance(); }
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
        auto& resumed = owner_->held().resumed;
        resumed.goes_on(false);
        if (left_-- <= 0 || owner_->finished() || owner_->driver().stop_signal() != 0) return;
        current_.emplace(owner_->step(where_));
        left_ = resumed.still_to_do(left_, where_);
        resumed.goes_on(left_ > 0);
      }
      Step* owner_ = nullptr;
      std::int64_t left_ = 0;
      std::source_location where_;
      std::optional<Results> current_;
    };
    Steps(Step& owner, std::int64_t count, std::source_location where) : owner_{&owner}, count_{count}, where_{where} {}
    Steps(Steps&& other) noexcept : owner_{std::exchange(other.owner_, nullptr)}, count_{other.count_}, where_{other.where_} {}
    Steps& operator=(Steps&&) = delete;
    ~Steps() {
      if (owner_ && owner_->held_) owner_->held_->resumed.end_loop();
    }
    Iterator begin() const { return {*owner_, count_, where_}; }
    std::default_sentinel_t end() const { return {}; }

   private:
    Step* owner_;
    std::int64_t count_;
    std::source_location where_;
  };
  Steps steps(std::int64_t count, std::source_location where = std::source_location::current()) {
    return {*this, held().resumed.still_to_do(count, where), where};
  }

 private:
  template <std::size_t... I>
  Results unpack(detail::StepResults& results, std::index_sequence<I...>) {
    return {per_replica<A>(results, I)...};
  }
  template <class V>
  PerReplica<V> per_replica(detail::StepResults& results, std::size_t k) {
    auto& values = results.values[k];
    return {{std::move_iterator{values.begin()}, std::move_iterator{values.end()}}, results.first[k], replicas_};
  }

  struct Held {
    Held(std::shared_ptr<detail::Engine> of, std::unique_ptr<detail::StepDriver> by, bool checkpointed)
        : engine{std::move(of)}, driver{std::move(by)}, resumed{engine->resumed_run, *driver, checkpointed} {}
    std::shared_ptr<detail::Engine> engine;  // destroyed last
    std::unique_ptr<detail::StepDriver> driver;
    detail::ResumedSteps resumed;
  };
  Held& held() const {
    if (!held_) detail::refuse_moved_step();
    return *held_;
  }
  detail::StepDriver& driver() const { return *held().driver; }

  int replicas_;
  std::unique_ptr<Held> held_;  // null: moved from
};

}  // namespace replicator
