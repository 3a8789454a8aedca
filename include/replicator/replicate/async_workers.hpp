// SPDX-License-Identifier: Apache-2.0
// The devices of this process at work in the asynchronous regime: the thread of a device makes the steps of its groups of replicas one
// after another, whatever the others do. Where a group has several devices, the first one leads. What groups of other processes do is heard of.
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
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/cpu/environment.hpp>
#include <replicator/replicate/async_peers.hpp>
#include <replicator/replicate/async_programs.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/stop_on_signal.hpp>
#include <replicator/runtime/execute.hpp>

namespace replicator {

// A group's step: it copies the newest variables, computes, and gives the mean of its gradients to every shard. After n calls of step() the groups
// have done n times as many steps as there are groups, whichever did them, and each has done one. A step without updates has
// nothing to count by, so there each group does one for each call.
class AsyncWorkers final : private ShardListener {
 public:
  // `peers`: null where the job has one process. `release` lets other processes know of an error. `current`: the first elements, by replica of this
  // process. The first three outlive this.
  AsyncWorkers(const Deployment& deployment, AsyncPrograms& programs, AsyncPeers* peers, std::function<void(const std::exception_ptr&)> release,
               std::vector<std::unique_ptr<InputSource>> inputs, std::vector<std::vector<AnyArray>> current)
      : deployment_{deployment}, programs_{programs}, peers_{peers}, release_{std::move(release)}, inputs_{std::move(inputs)},
        current_{std::move(current)}, next_(current_.size()), groups_(static_cast<std::size_t>(programs.placement().groups())) {
    if (peers_) peers_->serve(*this);
    for (int device = 0; device < programs_.placement().devices(); ++device) threads_.emplace_back([this, device] { serve(device); });
  }
  AsyncWorkers(const AsyncWorkers&) = delete;
  AsyncWorkers& operator=(const AsyncWorkers&) = delete;
  // What has begun is brought to its end. Where it fails, and no call is left to throw that, stderr has it.
  ~AsyncWorkers() {
    stop();
    if (peers_) part();
    if (error_ && !thrown_) tell_error();
  }

  // One step more, of all together. This and rest() throw the first error of a replica, and CommunicationError where the deadline passes and
  // no step is done.
  void step() {
    std::unique_lock lock{mutex_};
    ++asked_;
    for (auto& [group, report] : std::exchange(early_, {})) count_report(group, std::move(report));
    changed_.notify_all();
    wait(lock, [this] { return enough(); });
  }
  // Until no replica is in a step.
  void rest() {
    std::unique_lock lock{mutex_};
    wait(lock, [this] { return std::none_of(groups_.begin(), groups_.end(), [](const Progress& group) { return group.busy; }); });
  }
  // No further step can be made: all processes find so after the same one.
  bool ended() const {
    const std::lock_guard lock{mutex_};
    const auto is_ended = [](const Progress& group) { return group.ended; };
    if (!updates()) return std::any_of(groups_.begin(), groups_.end(), is_ended);
    return completed_ <= asked_ * groups_.size() && std::all_of(groups_.begin(), groups_.end(), is_ended);
  }
  // Of each replica's latest step, by result: of all replicas of the job where they are small, else of this process's.
  std::vector<std::vector<AnyArray>> results() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::vector<AnyArray>> results(programs_.results());
    for (std::size_t k = 0; k < results.size(); ++k)
      for (const auto& group : groups_) results[k].insert(results[k].end(), group.results[k].begin(), group.results[k].end());
    return results;
  }
  // That a program of some process has caught, as far as it was heard of; 0 where none has. In a step without updates, that was told with the steps
  // that have been asked for: all processes stop after the same one, or others would wait for the next one of this process's groups.
  int stop_signal() const {
    const std::lock_guard lock{mutex_};
    return updates() ? std::max(stop_signal_, StopOnSignal::received()) : stop_signal_;
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
    int stop_signal = 0;      // that the program had caught when the latest was done; of a group of this process
    std::vector<std::vector<AnyArray>> results;  // of the latest step: [result][replica]
  };
  // Of a group of another process.
  struct Report {
    std::uint64_t steps = 0;
    bool ended = false;
    int stop_signal = 0;
    std::vector<std::vector<AnyArray>> results;
  };
  Progress& progress_of(const AsyncGroup& group) { return groups_[static_cast<std::size_t>(group.index)]; }
  // Of this process's replicas, one of the job.
  std::size_t local(int replica) const {
    const auto& placement = programs_.placement();
    return static_cast<std::size_t>(replica - placement.first_replica(placement.first_group()));
  }
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
      if (!error_) {
        count_step(*group, progress);
        if (peers_) unlocked(lock, [&] { report(*group, progress); });
      }
      progress.busy = false;
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
    if (error) keep(error);
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
    for (std::size_t s = 0; s < shards.size(); ++s) read(s, group, leader.device);
    begin_members(progress, more);
    compute(group, leader, number);
    await_members(group, progress);
    for (std::size_t s = 0; s < shards.size(); ++s) update(s, group, leader.device);
  }
  void read(std::size_t s, const AsyncGroup& group, int device) {
    auto& shard = *programs_.shards()[s];
    if (shard.gate) shard.gate->read(group.index, [&] { programs_.pull(s, device); });
    else peers_->client(device).read(shard.owner, group.index, s, programs_.values_at(s, device));
  }
  void update(std::size_t s, const AsyncGroup& group, int device) {
    auto& shard = *programs_.shards()[s];
    if (shard.gate) {
      shard.gate->update(group.index, [&](std::int64_t before) { programs_.update(shard, group.means, before); });
      if (peers_ && deployment_.staleness) peers_->client(device).look();  // it may hold up others no longer
      return;
    }
    ShardClient::ConstPieces gradients;
    for (const auto& [ordinal, type] : shard.gradients) gradients.push_back(group.means[ordinal].bytes());
    peers_->client(device).update(shard.owner, group.index, s, gradients);
  }
  // To the other processes; the group is still busy.
  void report(const AsyncGroup& group, const Progress& progress) {
    std::vector<std::byte> bytes(programs_.result_bytes());
    programs_.pack_results(progress.results, bytes);
    peers_->client(group.members[0].device).report(group.index, progress.steps, progress.ended, progress.stop_signal, bytes);
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
    const auto first = local(member.first), count = static_cast<std::size_t>(member.count);
    try {
      execute(member.program, std::span{current_}.subspan(first, count),
              {.seed = programs_.seed(), .step = number, .deadline = deployment_.deadline, .capture = deployment_.capture});
    } catch (const CommunicationError& error) {
      throw CommunicationError{programs_.placement().text(group.index) + ", counted from 0 in what follows: " + error.what(),
                               programs_.placement().process()};
    }
    for (auto r = first; r < first + count; ++r) std::swap(current_[r], next_[r]);
  }
  // False where the input of one of its replicas has ended.
  bool read_next(const AsyncMember& member, std::uint64_t number) {
    bool more = true;
    for (int r = member.first; r < member.first + member.count; ++r) more = read_next(r, number) && more;
    return more;
  }
  bool read_next(int replica, std::uint64_t number) {
    const auto r = local(replica);
    auto element = inputs_[r]->next();
    if (!element) return false;
    for (std::size_t i = 0; i < element->size(); ++i)
      if (const auto &type = (*element)[i].type(), &first = current_[r][i].type(); type != first)
        throw BuildError{"component " + std::to_string(i) + " of element " + std::to_string(number + 1) + " of replica " + std::to_string(replica) +
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
    progress.stop_signal = StopOnSignal::received();
    stop_signal_ = std::max(stop_signal_, progress.stop_signal);
    ++progress.steps;
    ++completed_;
  }
  // Locked.
  void count_report(int group, Report report) {
    auto& progress = groups_[static_cast<std::size_t>(group)];
    progress.results = std::move(report.results);
    progress.ended = report.ended;
    progress.steps = report.steps;
    stop_signal_ = std::max(stop_signal_, report.stop_signal);
    ++completed_;
  }
  // Locked. The first one counts. Whoever waits at a shard, or for the others of a group, is released.
  void keep(const std::exception_ptr& error) {
    if (error_) return;
    error_ = error;
    for (auto& shard : programs_.shards())
      if (shard->gate) shard->gate->abort(error);
    for (auto& group : programs_.groups()) group->wire->abort({"another replica failed", 0});
    if (peers_) release_(error);
  }

  // --- the server's thread -----------------------------------------------------------------------------------------------------
  void hear(const ShardCall& call, std::span<const std::byte> results) override {
    {
      const std::lock_guard lock{mutex_};
      Report report{call.steps, call.ended != 0, call.stop_signal, programs_.unpack_results(results)};
      if (!updates() && call.steps > asked_) early_.emplace_back(call.group, std::move(report));  // its process has called step() once more
      else count_report(call.group, std::move(report));
    }
    changed_.notify_all();
  }
  void hear_signal(int signal) override {
    const std::lock_guard lock{mutex_};
    stop_signal_ = std::max(stop_signal_, signal);
  }
  void fail(const std::exception_ptr& error) override {
    {
      const std::lock_guard lock{mutex_};
      keep(error);
    }
    changed_.notify_all();
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
      else if (now >= end) keep(std::make_exception_ptr(late_error()));
      else if (!std::exchange(told, true)) std::fprintf(stderr, "replicator: waiting for a step of %s\n", busy_text().c_str());
    }
    if (!error_) return;
    thrown_ = true;
    changed_.notify_all();
    std::rethrow_exception(error_);
  }
  void stop() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  // From the other processes, which may have steps to make yet.
  void part() {
    if (std::uncaught_exceptions() > exceptions_at_start_) {
      thrown_ = true;
      fail(std::make_exception_ptr(BuildError{"the program left its steps by an error of its own"}));
    }
    try {
      if (!failed()) peers_->part();
    } catch (const CommunicationError&) {
      fail(std::current_exception());
    }
    peers_->stop_serving();
  }
  bool failed() const {
    const std::lock_guard lock{mutex_};
    return error_ != nullptr;
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
  // Of other processes: groups that may be.
  std::string busy_text() const {
    std::string text;
    const auto& placement = programs_.placement();
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].busy || (placement.process_of(static_cast<int>(g)) != placement.process() && !groups_[g].ended))
        text += (text.empty() ? "" : ", ") + placement.text(static_cast<int>(g)) + " (at step " + std::to_string(groups_[g].steps) + ")";
    return text.empty() ? "no replica: none is at work" : text;
  }
  CommunicationError late_error() const {
    return {"no step was done until the deadline; at work: " + busy_text() +
                ". Who is at work is stopped or slow: look there, or allow more time with --deadline",
            -1};
  }

  const Deployment& deployment_;
  AsyncPrograms& programs_;
  AsyncPeers* peers_;
  std::function<void(const std::exception_ptr&)> release_;
  int exceptions_at_start_ = std::uncaught_exceptions();
  std::vector<std::unique_ptr<InputSource>> inputs_;
  std::vector<std::vector<AnyArray>> current_, next_;  // elements by replica of this process, each the thread's of its device
  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::vector<Progress> groups_;  // of the job
  std::vector<std::pair<int, Report>> early_;  // by group, of a call of step() that this process has not made yet; of a step without updates
  std::uint64_t asked_ = 0;      // calls of step()
  std::uint64_t completed_ = 0;  // steps of groups
  int stop_signal_ = 0;
  std::exception_ptr error_;
  bool thrown_ = false;  // by step() or rest()
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace replicator
