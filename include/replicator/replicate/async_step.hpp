// SPDX-License-Identifier: Apache-2.0
// How a host drives a step in the asynchronous regime: a thread for each device makes the steps of its groups of replicas one after
// another, whatever the others do.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/graph/dot.hpp>
#include <replicator/replicate/async_programs.hpp>
#include <replicator/replicate/async_report.hpp>
#include <replicator/replicate/at_work.hpp>
#include <replicator/replicate/replica_context.hpp>

namespace replicator {

// A group's step: it copies the newest variables, computes, and gives the mean of its gradients to every shard. The n-th call of run() returns
// when the groups have done n times as many steps as there are groups, whichever did them, and each has done one. A step without updates has
// nothing to count by, so there each group does one for each call.
class AsyncStep final : public StepDriver, private Works {
 public:
  // `host` and `at_work` outlive this.
  AsyncStep(Host& host, AtWork& at_work, int ordinal, std::vector<std::unique_ptr<InputSource>> inputs, const Trace& trace)
      : host_{host}, at_work_{at_work}, inputs_{std::move(inputs)} {
    host_.failure().answer();
    read_first();
    trace_all(trace);
    programs_ = std::make_unique<AsyncPrograms>(host_, traced_, ordinal, waiting());
    groups_.resize(programs_->groups().size());
    at_work_.add(*this);
    for (int device = 0; device < static_cast<int>(host_.deployment().devices.size()); ++device)
      threads_.emplace_back([this, device] { serve(device); });
  }
  ~AsyncStep() override {
    at_work_.remove(*this);
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  StepResults run() override {
    if (finished_) throw BuildError{"the input has ended after " + std::to_string(done_) + " steps: ask finished() before another step"};
    host_.failure().answer();
    if (at_work_.begin(*this)) programs_->pull_unchanging();
    std::unique_lock lock{mutex_};
    ++asked_;
    changed_.notify_all();
    wait(lock, [this] { return enough(); });
    ++done_;
    finished_ = ended();
    return results();
  }
  bool finished() const override { return finished_; }
  std::uint64_t steps_done() const override { return done_; }
  std::uint64_t steps_resumed() const override { return 0; }
  int stop_signal() override { return host_.stop_signal(); }
  std::string explain(const ExplainOptions& options) override {
    std::vector<std::uint64_t> steps;
    {
      const std::lock_guard lock{mutex_};
      for (const auto& group : groups_) steps.push_back(group.steps);
    }
    return explain_async(*programs_, host_.deployment(), steps, options);
  }
  std::string dot() override { return replicator::dot(traced_); }
  std::string resolved_dot() override { return replicator::dot(programs_->whole()); }
  std::string plan_json() override {
    throw BuildError{"plan_json() was asked for with --regime async: plans tell of devices at the same step; explain() tells of this regime"};
  }

 private:
  using Clock = Shard::Clock;
  struct Progress {
    std::uint64_t steps = 0;
    bool busy = false;
    bool ended = false;  // its input
    std::vector<std::vector<AnyArray>> results;  // of its latest step: [result][replica]
  };

  // --- before the first step -------------------------------------------------------------------------------------------------
  void read_first() {
    for (std::size_t r = 0; r < inputs_.size(); ++r) {
      auto element = inputs_[r]->next();
      if (!element) throw DataError{"the input of replica " + std::to_string(r) + " is empty: give it at least one element"};
      current_.push_back(std::move(*element));
    }
    next_.resize(current_.size());
  }
  void trace_all(const Trace& trace) {
    traced_.reserve(current_.size());
    for (std::size_t r = 0; r < current_.size(); ++r) {
      auto& graph = traced_.emplace_back(static_cast<int>(r), static_cast<int>(current_.size()));
      std::vector<AnyTensor> tensors;
      for (std::uint32_t i = 0; i < current_[r].size(); ++i)
        tensors.push_back(graph.tensor(graph.add({Input{Input::Source::element, i}, {}, {current_[r][i].type()}, {}, "input" + std::to_string(i)})));
      ReplicaContext context{graph};
      trace(context, tensors);
    }
  }
  Shard::Waiting waiting() {
    const auto& deployment = host_.deployment();
    return {deployment.deadline, deployment.late,
            [this](int reader, int holder, bool bound) {
              std::fprintf(stderr, "replicator: %s waits %s\n", group_text(reader).c_str(), reason(holder, bound).c_str());
            },
            [this](int reader, int holder, bool bound) {
              throw CommunicationError{group_text(reader) + " waited until the deadline " + reason(holder, bound) +
                                           ". It is stopped or slow: look there, or allow more time with --deadline",
                                       0};
            }};
  }
  std::string group_text(int index) const {
    const int each = host_.deployment().sync_group, first = index * each;
    if (each == 1) return "replica " + std::to_string(first);
    return "the group of replicas " + std::to_string(first) + " to " + std::to_string(first + each - 1);
  }
  std::string reason(int holder, bool bound) const {
    const std::string who = holder < 0 ? "others, who copy variables" : group_text(holder);
    if (!bound) return "for " + who + " at a shard of the variables";
    return "for " + who + ", whose gradient would be older than --staleness " + std::to_string(*host_.deployment().staleness);
  }

  // --- the threads of devices ------------------------------------------------------------------------------------------------
  void serve(int device) {
    const cpu::KernelEnvironment environment{host_.deployment().threads_per_device};
    std::unique_lock lock{mutex_};
    for (;;) {
      AsyncGroup* group = nullptr;
      changed_.wait(lock, [&] { return stop_ || error_ || (group = next_group(device)) != nullptr; });
      if (stop_ || error_) return;
      auto& progress = groups_[static_cast<std::size_t>(group->index)];
      progress.busy = true;
      lock.unlock();
      std::exception_ptr error;
      bool more = false;
      try {
        more = make_step(*group, progress.steps);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      progress.busy = false;
      if (error) fail(error);
      else count_step(*group, progress, more);
      changed_.notify_all();
    }
  }
  // Of the device, that which has done least. A group with an element may begin where steps were asked for that nobody has done.
  AsyncGroup* next_group(int device) {
    AsyncGroup* chosen = nullptr;
    for (const auto& group : programs_->groups()) {
      const auto& progress = groups_[static_cast<std::size_t>(group->index)];
      const bool wanted = updates() ? completed_ < asked_ * groups_.size() : progress.steps < asked_;
      if (group->device != device || progress.ended || !wanted) continue;
      if (!chosen || progress.steps < groups_[static_cast<std::size_t>(chosen->index)].steps) chosen = group.get();
    }
    return chosen;
  }
  bool updates() const { return !programs_->shards().empty(); }
  // False where the input of one of its replicas has ended with this step.
  bool make_step(AsyncGroup& group, std::uint64_t number) {
    bool more = true;
    for (int r = group.first; r < group.first + group.count; ++r) more = read_next(static_cast<std::size_t>(r), number) && more;
    auto& shards = programs_->shards();
    for (std::size_t s = 0; s < shards.size(); ++s) shards[s]->gate->read(group.index, [&] { programs_->pull(s, group.device); });
    const auto first = static_cast<std::size_t>(group.first), count = static_cast<std::size_t>(group.count);
    execute(group.program, std::span{current_}.subspan(first, count), {.seed = programs_->seed(), .step = number});
    for (auto& shard : shards)
      shard->gate->update(group.index, [&](std::int64_t before) {
        const auto step = static_cast<std::uint64_t>(before) / groups_.size();
        execute(shard->program, {&group.means, 1}, {.seed = programs_->seed(), .step = step});
      });
    for (auto r = first; r < first + count; ++r) std::swap(current_[r], next_[r]);
    return more;
  }
  bool read_next(std::size_t r, std::uint64_t number) {
    auto element = inputs_[r]->next();
    if (!element) return false;
    for (std::size_t i = 0; i < element->size(); ++i)
      if (const auto &type = (*element)[i].type(), &first = current_[r][i].type(); type != first)
        throw BuildError{"component " + std::to_string(i) + " of element " + std::to_string(number + 1) + " of replica " + std::to_string(r) + " is " +
                         type.text() + ", that of the elements before is " + first.text() +
                         ": with --regime async all elements of a replica have the same shapes; pad them, or run with --regime sync"};
    next_[r] = std::move(*element);
    return true;
  }
  // Locked.
  void count_step(const AsyncGroup& group, Progress& progress, bool more) {
    progress.results.assign(programs_->results(), {});
    for (std::size_t k = 0; k < programs_->results(); ++k)
      for (int r = 0; r < group.count; ++r)
        progress.results[k].push_back(group.program.results[k][group.program.uniform_result[k] ? 0 : static_cast<std::size_t>(r)]);
    progress.ended = !more;
    ++progress.steps;
    ++completed_;
  }
  // Locked. Whoever waits at a shard is released.
  void fail(const std::exception_ptr& error) {
    if (!error_) error_ = error;
    for (auto& shard : programs_->shards()) shard->gate->abort(error);
  }

  // --- the calling thread ----------------------------------------------------------------------------------------------------
  bool enough() const {
    const auto all = [this](auto holds) { return std::all_of(groups_.begin(), groups_.end(), holds); };
    if (!updates()) return all([this](const Progress& group) { return group.steps >= asked_; });
    return all([](const Progress& group) { return group.ended; }) ||
           (completed_ >= asked_ * groups_.size() && all([](const Progress& group) { return group.steps > 0; }));
  }
  bool ended() const {
    const auto is_ended = [](const Progress& group) { return group.ended; };
    return updates() ? std::all_of(groups_.begin(), groups_.end(), is_ended) : std::any_of(groups_.begin(), groups_.end(), is_ended);
  }
  StepResults results() const {
    StepResults results;
    results.values.resize(programs_->results());
    results.first.assign(programs_->results(), 0);
    for (std::size_t k = 0; k < results.values.size(); ++k)
      for (const auto& group : groups_) results.values[k].insert(results.values[k].end(), group.results[k].begin(), group.results[k].end());
    results.all_have_next = !finished_;
    return results;
  }
  void rest() override {
    std::unique_lock lock{mutex_};
    if (!error_) wait(lock, [this] { return std::none_of(groups_.begin(), groups_.end(), [](const Progress& group) { return group.busy; }); });
  }
  // Every step that is done begins the deadline anew.
  template <class Predicate>
  void wait(std::unique_lock<std::mutex>& lock, Predicate done) {
    const auto& deployment = host_.deployment();
    auto began = Clock::now();
    auto seen = completed_;
    bool told = deployment.late.count() == 0;
    while (!error_ && !done()) {
      const auto end = deployment.deadline.count() > 0 ? began + deployment.deadline : Clock::time_point::max();
      const auto until = told ? end : std::min<Clock::time_point>(end, began + deployment.late);
      if (until == Clock::time_point::max()) changed_.wait(lock);
      else changed_.wait_until(lock, until);
      const auto now = Clock::now();
      if (std::exchange(seen, completed_) != completed_) began = now;
      else if (now >= end && !error_ && !done()) fail(std::make_exception_ptr(late_error()));
      else if (now >= until && !std::exchange(told, true)) std::fprintf(stderr, "replicator: waiting for a step of %s\n", busy_text().c_str());
    }
    if (!error_) return;
    changed_.notify_all();
    host_.failure().keep(error_);
    std::rethrow_exception(error_);
  }
  std::string busy_text() const {
    std::string text;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].busy) text += (text.empty() ? "" : ", ") + group_text(static_cast<int>(g)) + " (at step " + std::to_string(groups_[g].steps) + ")";
    return text.empty() ? "no replica: none is at work" : text;
  }
  CommunicationError late_error() const {
    return {"no step was done until the deadline; at work: " + busy_text() + ". Who is at work is stopped or slow: look there, or allow more time with --deadline",
            0};
  }

  Host& host_;
  AtWork& at_work_;
  std::vector<std::unique_ptr<InputSource>> inputs_;
  std::vector<std::vector<AnyArray>> current_, next_;  // by replica
  std::vector<Graph> traced_;
  std::unique_ptr<AsyncPrograms> programs_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Progress> groups_;
  std::uint64_t asked_ = 0;      // calls of run()
  std::uint64_t completed_ = 0;  // steps of groups
  std::exception_ptr error_;
  bool stop_ = false;
  std::uint64_t done_ = 0;  // the calling thread's, as `finished_`
  bool finished_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace replicator
