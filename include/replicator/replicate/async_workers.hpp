// SPDX-License-Identifier: Apache-2.0
// The devices of this process at work in the asynchronous regime: the thread of a device makes the steps of its groups of replicas one
// after another, whatever the others do. Where a group has several devices, the first one leads.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/cpu/environment.hpp>
#include <replicator/replicate/async_programs.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/runtime/execute.hpp>

namespace replicator {

// A group's step: it copies the newest variables, computes, and gives the mean of its gradients to every shard. After n calls of step() the groups
// have done n times as many steps as there are groups, whichever did them, and each has done one. A step without updates has
// nothing to count by, so there each group does one for each call.
class AsyncWorkers {
 public:
  // `current`: the first elements, by replica. The first two outlive this.
  AsyncWorkers(const Deployment& deployment, AsyncPrograms& programs, std::vector<std::unique_ptr<InputSource>> inputs,
               std::vector<std::vector<AnyArray>> current)
      : deployment_{deployment}, programs_{programs}, inputs_{std::move(inputs)}, current_{std::move(current)}, next_(current_.size()),
        groups_(programs.groups().size()) {
    for (int device = 0; device < programs_.placement().devices(); ++device) threads_.emplace_back([this, device] { serve(device); });
  }
  AsyncWorkers(const AsyncWorkers&) = delete;
  AsyncWorkers& operator=(const AsyncWorkers&) = delete;
  // What has begun is brought to its end. Where it fails, and no call is left to throw that, stderr has it.
  ~AsyncWorkers() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
    if (error_ && !thrown_) tell_error();
  }

  // One step more, of all together. This and rest() throw the first error of a replica, and CommunicationError where the deadline passes and
  // no step is done.
  void step() {
    std::unique_lock lock{mutex_};
    ++asked_;
    changed_.notify_all();
    wait(lock, [this] { return enough(); });
  }
  // Until no replica is in a step.
  void rest() {
    std::unique_lock lock{mutex_};
    wait(lock, [this] { return std::none_of(groups_.begin(), groups_.end(), [](const Progress& group) { return group.busy; }); });
  }
  // No further step can be made.
  bool ended() const {
    const std::lock_guard lock{mutex_};
    const auto is_ended = [](const Progress& group) { return group.ended; };
    return updates() ? std::all_of(groups_.begin(), groups_.end(), is_ended) : std::any_of(groups_.begin(), groups_.end(), is_ended);
  }
  // Of each replica's latest step, by result.
  std::vector<std::vector<AnyArray>> results() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::vector<AnyArray>> results(programs_.results());
    for (std::size_t k = 0; k < results.size(); ++k)
      for (const auto& group : groups_) results[k].insert(results[k].end(), group.results[k].begin(), group.results[k].end());
    return results;
  }
  // That each group has done.
  std::vector<std::uint64_t> steps() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::uint64_t> steps;
    for (const auto& group : groups_) steps.push_back(group.steps);
    return steps;
  }

 private:
  using Clock = Shard::Clock;
  struct Progress {
    std::uint64_t steps = 0;
    bool busy = false;
    bool ended = false;       // its input
    std::uint64_t begun = 0;  // steps for which the leader has read variables
    std::size_t back = 0;     // members but the leader that have done the latest of them
    bool more = true;         // all members had an element for another one
    std::vector<std::vector<AnyArray>> results;  // of the latest step: [result][replica]
  };
  Progress& progress_of(const AsyncGroup& group) { return groups_[static_cast<std::size_t>(group.index)]; }
  bool updates() const { return !programs_.shards().empty(); }

  // --- the threads of devices ------------------------------------------------------------------------------------------------
  void serve(int device) {
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    for (const auto& group : programs_.groups())
      for (std::size_t m = 1; m < group->members.size(); ++m)
        if (group->members[m].device == device) return follow(*group, group->members[m]);
    lead(device);
  }
  void lead(int device) {
    std::unique_lock lock{mutex_};
    for (;;) {
      AsyncGroup* group = nullptr;
      changed_.wait(lock, [&] { return stop_ || error_ || (group = next_group(device)) != nullptr; });
      if (stop_ || error_) return;
      auto& progress = progress_of(*group);
      progress.busy = true;
      unlocked(lock, [&] { make_step(*group, progress); });
      progress.busy = false;
      if (!error_) count_step(*group, progress);
      changed_.notify_all();
    }
  }
  // Does what the leader has begun, or is about to, even if no other step will be.
  void follow(const AsyncGroup& group, AsyncMember& member) {
    auto& progress = progress_of(group);
    std::unique_lock lock{mutex_};
    for (std::uint64_t done = 0;; ++done) {
      changed_.wait(lock, [&] { return error_ || progress.begun > done || (stop_ && !progress.busy); });
      if (error_ || progress.begun == done) return;
      bool more = true;
      unlocked(lock, [&] {
        more = read_next(member, done);
        compute(group, member, done);
      });
      progress.more = progress.more && more;
      ++progress.back;
      changed_.notify_all();
    }
  }
  // What it throws is the error of all.
  template <class Work>
  void unlocked(std::unique_lock<std::mutex>& lock, Work work) {
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) fail(error);
  }
  // That the device leads: of those that have an element and of which a step is wanted, the one that has done least.
  AsyncGroup* next_group(int device) {
    AsyncGroup* chosen = nullptr;
    for (const auto& group : programs_.groups()) {
      const auto& progress = progress_of(*group);
      const bool first = asked_ > 0 && progress.steps == 0;  // each does one
      const bool wanted = updates() ? first || completed_ < asked_ * groups_.size() : progress.steps < asked_;
      if (group->members[0].device != device || progress.ended || !wanted) continue;
      if (!chosen || progress.steps < progress_of(*chosen).steps) chosen = group.get();
    }
    return chosen;
  }

  // The leader's, of the whole group.
  void make_step(AsyncGroup& group, Progress& progress) {
    auto& leader = group.members[0];
    const auto number = progress.steps;
    const bool more = read_next(leader, number);
    auto& shards = programs_.shards();
    for (std::size_t s = 0; s < shards.size(); ++s) shards[s]->gate->read(group.index, [&] { programs_.pull(s, leader.device); });
    begin_members(progress, more);
    compute(group, leader, number);
    await_members(group, progress);
    for (auto& shard : shards) shard->gate->update(group.index, [&](std::int64_t before) { update(*shard, group, before); });
  }
  // Locked by the shard. A program's steps are counted as in the synchronous regime: by gradients of all groups.
  void update(AsyncShard& shard, const AsyncGroup& group, std::int64_t before) {
    execute(shard.program, {&group.means, 1},
            {.seed = programs_.seed(), .step = static_cast<std::uint64_t>(before) / groups_.size(), .capture = deployment_.capture});
  }
  void begin_members(Progress& progress, bool more) {
    {
      const std::lock_guard lock{mutex_};
      progress.more = more;
      progress.back = 0;
      ++progress.begun;
    }
    changed_.notify_all();
  }
  void await_members(const AsyncGroup& group, const Progress& progress) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return error_ || progress.back + 1 == group.members.size(); });
    if (error_) std::rethrow_exception(error_);
  }
  // The step of a member's replicas, of the elements that they have; then the next ones are theirs.
  void compute(const AsyncGroup& group, AsyncMember& member, std::uint64_t number) {
    const auto first = static_cast<std::size_t>(member.first), count = static_cast<std::size_t>(member.count);
    try {
      execute(member.program, std::span{current_}.subspan(first, count),
              {.seed = programs_.seed(), .step = number, .deadline = deployment_.deadline, .capture = deployment_.capture});
    } catch (const CommunicationError& error) {
      throw CommunicationError{programs_.placement().text(group.index) + ", counted from 0 in what follows: " + error.what(), 0};
    }
    for (auto r = first; r < first + count; ++r) std::swap(current_[r], next_[r]);
  }
  // False where the input of one of its replicas has ended.
  bool read_next(const AsyncMember& member, std::uint64_t number) {
    bool more = true;
    for (int r = member.first; r < member.first + member.count; ++r) more = read_next(static_cast<std::size_t>(r), number) && more;
    return more;
  }
  bool read_next(std::size_t r, std::uint64_t number) {
    auto element = inputs_[r]->next();
    if (!element) return false;
    for (std::size_t i = 0; i < element->size(); ++i)
      if (const auto &type = (*element)[i].type(), &first = current_[r][i].type(); type != first)
        throw BuildError{"component " + std::to_string(i) + " of element " + std::to_string(number + 1) + " of replica " + std::to_string(r) +
                         " is " + type.text() + ", that of the elements before is " + first.text() +
                         ": with --regime async all elements of a replica have the same shapes; pad them, or run with --regime sync"};
    next_[r] = std::move(*element);
    return true;
  }
  // Locked.
  void count_step(const AsyncGroup& group, Progress& progress) {
    progress.results.assign(programs_.results(), {});
    for (const auto& member : group.members)
      for (std::size_t k = 0; k < programs_.results(); ++k)
        for (int r = 0; r < member.count; ++r)
          progress.results[k].push_back(member.program.results[k][member.program.uniform_result[k] ? 0 : static_cast<std::size_t>(r)]);
    progress.ended = !progress.more;
    ++progress.steps;
    ++completed_;
  }
  // Locked. The first one counts. Whoever waits at a shard, or for the others of a group, is released.
  void fail(const std::exception_ptr& error) {
    if (error_) return;
    error_ = error;
    for (auto& shard : programs_.shards()) shard->gate->abort(error);
    for (auto& group : programs_.groups()) group->wire->abort({"another replica failed", 0});
  }

  // --- the calling thread ----------------------------------------------------------------------------------------------------
  bool enough() const {
    const auto all = [this](auto holds) { return std::all_of(groups_.begin(), groups_.end(), holds); };
    if (!updates()) return all([this](const Progress& group) { return group.steps >= asked_; });
    return all([](const Progress& group) { return group.ended; }) ||
           (completed_ >= asked_ * groups_.size() && all([](const Progress& group) { return group.steps > 0; }));
  }
  // Every step that is done begins the deadline anew. It is a quarter longer here: who waits at a shard knows better for whom.
  template <class Predicate>
  void wait(std::unique_lock<std::mutex>& lock, Predicate done) {
    auto began = Clock::now();
    auto seen = completed_;
    bool told = deployment_.late.count() == 0;
    while (!error_ && !done()) {
      const std::chrono::nanoseconds deadline = deployment_.deadline;
      const auto end = deadline.count() > 0 ? began + deadline + deadline / 4 : Clock::time_point::max();
      const auto until = told ? end : std::min<Clock::time_point>(end, began + deployment_.late);
      if (until == Clock::time_point::max()) changed_.wait(lock);
      else changed_.wait_until(lock, until);
      const auto now = Clock::now();
      if (std::exchange(seen, completed_) != completed_) began = now;
      else if (now < until || error_ || done()) continue;
      else if (now >= end) fail(std::make_exception_ptr(late_error()));
      else if (!std::exchange(told, true)) std::fprintf(stderr, "replicator: waiting for a step of %s\n", busy_text().c_str());
    }
    if (!error_) return;
    thrown_ = true;
    changed_.notify_all();
    std::rethrow_exception(error_);
  }
  void tell_error() const {
    try {
      std::rethrow_exception(error_);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "replicator: a replica that went on after the program's last step failed: %s\n", error.what());
    } catch (...) {
      std::fprintf(stderr, "replicator: a replica that went on after the program's last step failed: an exception that is no std::exception\n");
    }
  }
  std::string busy_text() const {
    std::string text;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].busy)
        text += (text.empty() ? "" : ", ") + programs_.placement().text(static_cast<int>(g)) + " (at step " + std::to_string(groups_[g].steps) + ")";
    return text.empty() ? "no replica: none is at work" : text;
  }
  CommunicationError late_error() const {
    return {"no step was done until the deadline; at work: " + busy_text() +
                ". Who is at work is stopped or slow: look there, or allow more time with --deadline",
            0};
  }

  const Deployment& deployment_;
  AsyncPrograms& programs_;
  std::vector<std::unique_ptr<InputSource>> inputs_;
  std::vector<std::vector<AnyArray>> current_, next_;  // elements by replica, each the thread's of its device
  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::vector<Progress> groups_;
  std::uint64_t asked_ = 0;      // calls of step()
  std::uint64_t completed_ = 0;  // steps of groups
  std::exception_ptr error_;
  bool thrown_ = false;  // by step() or rest()
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace replicator
