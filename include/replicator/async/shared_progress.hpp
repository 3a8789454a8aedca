// SPDX-License-Identifier: Apache-2.0
// SharedProgress: the state that the threads of an asynchronous step share: the progress of all groups, the first
// error, and the request to stop. Workers report their steps here, and the server's thread reports those of other
// processes. The program's thread waits here until its call of step() is done.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/async_programs.hpp>
#include <replicator/async/async_progress.hpp>
#include <replicator/async/shard.hpp>
#include <replicator/async/shard_listener.hpp>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/engine/failure.hpp>

namespace replicator::detail {

// AsyncProgress behind a mutex. "Needs the lock" marks functions that only a predicate of await() or a change of
// change() may call.
class SharedProgress final : public ShardListener {
 public:
  // Calls on_error for the first error, with the lock held. It releases every thread that waits elsewhere. The first
  // two arguments outlive this object.
  SharedProgress(const Deployment& deployment, AsyncPrograms& programs, std::function<void(const std::exception_ptr&)> on_error)
      : deployment_{deployment}, programs_{programs}, on_error_{std::move(on_error)}, progress_{programs.placement().processes_of_groups(), programs.placement().process(), !programs.shards().empty()}, serving_(static_cast<std::size_t>(programs.placement().devices()), true) {}
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  // --- the program's thread ----------------------------------------------------------------------------------------------------
  // Makes one more step of all groups together. Like rest() it throws the first error, and CommunicationError if the
  // deadline passes without any step. It also throws if a group makes no more steps although the call needs one.
  // `barriers`: the number of barriers of all processes so far.
  void step(std::uint64_t barriers) {
    std::unique_lock lock{mutex_};
    progress_.call(barriers);
    changed_.notify_all();
    wait(
        lock, [this] { return progress_.enough() || progress_.missing(); }, [this] { return progress_.completed(); }, [this] { return progress_.running(); });
    if (const auto group = progress_.missing()) fail_call(*group);
  }
  // Returns when no replica of this process is in a step.
  void rest() {
    std::unique_lock lock{mutex_};
    wait(
        lock, [this] { return progress_.busy().empty(); }, [this] { return progress_.steps_of(programs_.placement().process()); },
        [this] { return progress_.busy(); });
  }
  // The program already knows of the error, so it need not be printed on stderr.
  void error_was_thrown() {
    const std::lock_guard lock{mutex_};
    thrown_ = true;
  }
  // Ends the step by this error, which the program already knows, unless there was an earlier error.
  void fail_thrown(const std::exception_ptr& error) {
    const std::lock_guard lock{mutex_};
    if (!error_) thrown_ = true;
    keep(error);
  }
  std::exception_ptr error() const {
    const std::lock_guard lock{mutex_};
    return error_;
  }
  // True if no call of the program has thrown the error.
  bool is_untold() const {
    const std::lock_guard lock{mutex_};
    return error_ && !thrown_;
  }
  // Asks the workers to begin no more steps, and waits until they have ended. After `late` it prints the groups that
  // are still in a step to stderr, once, and continues to wait. The caller then joins their threads.
  void stop() {
    std::unique_lock lock{mutex_};
    stop_ = true;
    changed_.notify_all();
    const auto at_rest = [this] { return std::find(serving_.begin(), serving_.end(), true) == serving_.end(); };
    DeadlineWait{{.late = deployment_.late}}.wait(changed_, lock, at_rest, [this] { tell_wait(); });
  }
  // True if no more steps can be made.
  bool ended() const {
    const std::lock_guard lock{mutex_};
    return progress_.ended();
  }
  // Element k has result k of each replica's latest step: of all replicas of the job if it is small, else of this process's
  // replicas.
  std::vector<std::vector<AnyArray>> results() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::vector<AnyArray>> results;
    for (std::size_t k = 0; k < programs_.results().size(); ++k) results.push_back(progress_.results(k));
    return results;
  }
  // The number of steps of each group of the job.
  std::vector<std::uint64_t> steps() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::uint64_t> steps;
    for (int group = 0; group < programs_.placement().groups(); ++group) steps.push_back(progress_.steps(group));
    return steps;
  }
  // The number of steps of all groups of this process together.
  std::uint64_t steps_here() const {
    const std::lock_guard lock{mutex_};
    return progress_.steps_of(programs_.placement().process());
  }

  // --- the workers' threads ----------------------------------------------------------------------------------------------------
  // Waits until ready(). Returns false after an error, even if ready.
  template <class Predicate>
  bool await(Predicate ready) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return error_ || ready(); });
    return !error_;
  }
  template <class Change>
  void change(Change apply) {
    {
      const std::lock_guard lock{mutex_};
      apply();
    }
    changed_.notify_all();
  }
  // Does the work without the lock. An exception becomes the error of all threads.
  template <class Work>
  void attempt(Work work) {
    try {
      work();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  // Returns false after an error, without counting the step.
  bool count(int group, AsyncReport report) {
    {
      const std::lock_guard lock{mutex_};
      if (error_) return false;
      progress_.count(group, std::move(report));
    }
    changed_.notify_all();
    return true;
  }
  // The device's thread has ended.
  void end_serving(int device) {
    change([&] { serving_[static_cast<std::size_t>(device)] = false; });
  }
  // These need the lock.
  AsyncProgress& groups() { return progress_; }
  bool stops() const { return stop_; }

  // --- the server's thread -----------------------------------------------------------------------------------------------------
  void hear(const ShardCall& call, std::span<const std::byte> results) override {
    AsyncReport report{call.steps, call.ended != 0, programs_.results().unpack(results)};
    change([&] { progress_.hear(call.group, std::move(report)); });
  }
  void hear_left(int process) override {
    change([&] { progress_.hear_left(process); });
  }
  void hear_pause(int process, std::uint64_t steps, std::uint64_t barriers) override {
    change([&] { progress_.hear_pause(process, steps, barriers); });
  }
  // Any thread may call it. Only the first error counts.
  void fail(const std::exception_ptr& error) override {
    const std::lock_guard lock{mutex_};
    keep(error);
  }

 private:
  // Needs the lock.
  void keep(const std::exception_ptr& error) {
    if (error_) return;
    error_ = error;
    on_error_(error);
    changed_.notify_all();
  }
  // Waits until done(). The deadline starts again with every step that steps() counts. awaited() returns the groups
  // that a message names.
  template <class Predicate, class Steps, class Awaited>
  void wait(std::unique_lock<std::mutex>& lock, Predicate done, Steps steps, Awaited awaited) {
    DeadlineWait wait{limits_behind_shard({deployment_.deadline, deployment_.late})};
    for (auto seen = steps(); !error_ && !done(); seen = steps(), wait.restart()) {
      const auto changed = [&] { return error_ || done() || steps() != seen; };
      if (!wait.wait(changed_, lock, changed, [&] { std::fprintf(stderr, "replicator: waiting for a step of %s\n", text(awaited()).c_str()); }))
        keep(std::make_exception_ptr(late_error(awaited())));
    }
    if (error_) throw_error();
  }
  [[noreturn]] void throw_error() {
    thrown_ = true;
    std::rethrow_exception(error_);
  }
  [[noreturn]] void fail_call(int group) {
    const auto& placement = programs_.placement();
    keep(std::make_exception_ptr(CommunicationError{
        "call " + std::to_string(progress_.calls()) + " of this step needs a step of " + placement.text(group) + ", which has made " +
            std::to_string(progress_.steps(group)) + " and makes no other: its process has gone on. Make as many calls on every process",
        placement.process_of(group)}));
    throw_error();
  }
  // Needs the lock; called after stop_ was set. Returns the groups with a device that is still at work.
  std::vector<int> groups_in_step() const {
    std::vector<int> groups;
    for (const auto& group : programs_.groups()) {
      const auto follows = [this](const AsyncMember& member) { return serving_[static_cast<std::size_t>(member.device)]; };
      if (progress_.is_busy(group->index) || std::any_of(group->members.begin() + 1, group->members.end(), follows)) groups.push_back(group->index);
    }
    return groups;
  }
  // Needs the lock. A replica that waits for its input, or in a host_callback, has no deadline. The program may not
  // have seen the error yet, so the message contains it.
  void tell_wait() const {
    const auto error = error_ ? ", after an error: " + text_of(error_) : "";
    std::fprintf(stderr, "replicator: the program makes no more steps, and waits for the present step of %s%s\n", text(groups_in_step()).c_str(), error.c_str());
  }
  std::string text(const std::vector<int>& groups) const {
    std::string text;
    for (const int group : groups)
      text += (text.empty() ? "" : ", ") + programs_.placement().text(group) + " (at step " + std::to_string(progress_.steps(group)) + ")";
    return text.empty() ? "no replica: none is at work" : text;
  }
  CommunicationError late_error(const std::vector<int>& awaited) const {
    return {"no step was done until the deadline; at work: " + text(awaited) +
                ". A replica at work is stopped or slow: look there, or allow more time with --deadline",
            -1};
  }

  const Deployment& deployment_;
  AsyncPrograms& programs_;
  std::function<void(const std::exception_ptr&)> on_error_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  AsyncProgress progress_;
  std::exception_ptr error_;
  bool thrown_ = false;  // a call of the program has thrown the error
  bool stop_ = false;
  std::vector<bool> serving_;  // by device: its thread is at work
};

}  // namespace replicator::detail
