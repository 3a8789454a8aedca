// SPDX-License-Identifier: Apache-2.0
// The devices of this process at work in the asynchronous regime: the thread of a device makes the steps of its groups of replicas one
// after another, whatever the others do. Where a group has several devices, the first one leads. What groups of other processes do is heard of.
#pragma once

#include <algorithm>
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

#include <replicator/async/async_elements.hpp>
#include <replicator/async/async_peers.hpp>
#include <replicator/async/async_programs.hpp>
#include <replicator/async/async_progress.hpp>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/engine/failure.hpp>
#include <replicator/engine/input_watch.hpp>
#include <replicator/runtime/execute.hpp>

namespace replicator {

// A group's step: it copies the newest variables, computes, and gives the mean of its gradients to every shard. How many it makes, and when the
// program's call of step() is done, AsyncProgress says.
class AsyncWorkers final : private ShardListener {
 public:
  // `peers`: null where the job has one process. `release` lets other processes know of an error. The first three outlive this.
  AsyncWorkers(const Deployment& deployment, AsyncPrograms& programs, AsyncPeers* peers, std::function<void(const std::exception_ptr&)> release,
               AsyncElements elements)
      : deployment_{deployment}, programs_{programs}, peers_{peers}, release_{std::move(release)}, elements_{std::move(elements)},
        progress_{programs.placement().processes_of_groups(), programs.placement().process(), !programs.shards().empty()},
        meetings_(programs.groups().size()) {
    for (int device = 0; device < programs_.placement().devices(); ++device) watches_.push_back(std::make_unique<InputWatch>(deployment_.late));
    serving_.assign(watches_.size(), true);
    if (peers_) peers_->serve(*this);
    for (int device = 0; device < programs_.placement().devices(); ++device)
      threads_.emplace_back([this, device] {
        serve(device);
        end_serving(device);
      });
  }
  AsyncWorkers(const AsyncWorkers&) = delete;
  AsyncWorkers& operator=(const AsyncWorkers&) = delete;
  ~AsyncWorkers() { end(); }

  // Where the program unwinds an exception: nobody may wait for this process. True in that case.
  bool leave_by_error() {
    if (!peers_ || std::uncaught_exceptions() <= exceptions_at_start_) return false;
    const std::lock_guard lock{mutex_};
    if (!error_) thrown_ = true;
    keep(std::make_exception_ptr(BuildError{"the program left its steps by an error of its own"}));
    return true;
  }
  // What has begun is brought to its end, that of the other processes too. Returns what failed; where no call has thrown it, stderr has it.
  std::exception_ptr end() {
    if (threads_.empty()) return error_;
    stop();
    if (peers_) part();
    if (error_ && !thrown_) tell_error();
    return error_;
  }

  // One step more, of all together. This and rest() throw the first error of a replica, and CommunicationError where the deadline passes and
  // no step is done; this one also where a replica has none to give that is needed. `meetings`: how often all processes have met.
  void step(std::uint64_t meetings) {
    std::unique_lock lock{mutex_};
    progress_.call(meetings);
    changed_.notify_all();
    wait(
        lock, [this] { return progress_.enough() || progress_.missing(); }, [this] { return progress_.completed(); }, [this] { return progress_.at_work(); });
    if (const auto group = progress_.missing()) fail_call(*group);
  }
  // Whether the calling thread is a device's, in the midst of a step.
  bool within_step() const {
    return std::any_of(threads_.begin(), threads_.end(), [](const auto& thread) { return thread.get_id() == std::this_thread::get_id(); });
  }
  // Until no replica is in a step.
  void rest() {
    std::unique_lock lock{mutex_};
    wait(
        lock, [this] { return progress_.busy().empty(); }, [this] { return progress_.steps_of(programs_.placement().process()); },
        [this] { return progress_.busy(); });
  }
  // At rest, and not to be called before all processes have met once more: the others wait for no step from here.
  void pause(std::uint64_t meetings) const {
    if (!peers_) return;
    std::unique_lock lock{mutex_};
    const auto steps = progress_.steps_of(programs_.placement().process());
    lock.unlock();
    peers_->client(0).pause(steps, meetings);
  }
  // The program knows of it.
  void error_was_thrown() {
    const std::lock_guard lock{mutex_};
    thrown_ = true;
  }
  // No further step can be made.
  bool ended() const {
    const std::lock_guard lock{mutex_};
    return progress_.ended();
  }
  // Of each replica's latest step, by result: of all replicas of the job where they are small, else of this process's.
  std::vector<std::vector<AnyArray>> results() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::vector<AnyArray>> results;
    for (std::size_t k = 0; k < programs_.results().size(); ++k) results.push_back(progress_.results(k));
    return results;
  }
  // That each group has done.
  std::vector<std::uint64_t> steps() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::uint64_t> steps;
    for (int group = 0; group < programs_.placement().groups(); ++group) steps.push_back(progress_.steps(group));
    return steps;
  }

 private:
  // Of the devices of a group, in each step.
  struct Meeting {
    std::uint64_t begun = 0;  // steps for which the leader has read variables
    std::size_t back = 0;     // members but the leader that have done the latest of them
    bool more = true;         // all members had an element for another one
  };
  InputWatch& watch_of(const AsyncMember& member) const { return *watches_[static_cast<std::size_t>(member.device)]; }
  Meeting& meeting_of(const AsyncGroup& group) { return meetings_[static_cast<std::size_t>(group.index - programs_.placement().first_group())]; }

  // --- the threads of devices ------------------------------------------------------------------------------------------------
  void serve(int device) {
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    for (const auto& group : programs_.groups())
      for (std::size_t m = 1; m < group->members.size(); ++m)
        if (group->members[m].device == device) return follow(*group, group->members[m]);
    lead(device);
  }
  void end_serving(int device) {
    {
      const std::lock_guard lock{mutex_};
      serving_[static_cast<std::size_t>(device)] = false;
    }
    changed_.notify_all();
  }
  void lead(int device) {
    std::unique_lock lock{mutex_};
    for (;;) {
      AsyncGroup* group = nullptr;
      changed_.wait(lock, [&] { return stop_ || error_ || (group = next_group(device)) != nullptr; });
      if (stop_ || error_) return;
      progress_.begin(group->index);
      lead_step(lock, *group, progress_.steps(group->index));
      progress_.rest(group->index);
      changed_.notify_all();
    }
  }
  // That the device leads: of those of which a step is wanted, the one that has done least.
  AsyncGroup* next_group(int device) const {
    AsyncGroup* chosen = nullptr;
    for (const auto& group : programs_.groups())
      if (group->members[0].device == device && progress_.wants(group->index) &&
          (!chosen || progress_.steps(group->index) < progress_.steps(chosen->index)))
        chosen = group.get();
    return chosen;
  }
  // Makes it, counts it, and tells the other processes.
  void lead_step(std::unique_lock<std::mutex>& lock, AsyncGroup& group, std::uint64_t number) {
    AsyncReport report{.steps = number + 1};
    std::vector<std::byte> told;
    unlocked(lock, [&] {
      report.ended = !make_step(group, number);
      report.results = results_of(group);
      if (peers_) told = programs_.results().pack(report.results);
    });
    if (error_) return;
    const bool ended = report.ended;
    progress_.count(group.index, std::move(report));
    changed_.notify_all();
    if (peers_) unlocked(lock, [&] { peers_->client(group.members[0].device).report(group.index, number + 1, ended, std::move(told)); });
  }
  // Does what the leader has begun, or is about to, even if no other step will be.
  void follow(const AsyncGroup& group, AsyncMember& member) {
    auto& meeting = meeting_of(group);
    std::unique_lock lock{mutex_};
    for (std::uint64_t done = 0;; ++done) {
      changed_.wait(lock, [&] { return error_ || meeting.begun > done || (stop_ && !progress_.is_busy(group.index)); });
      if (error_ || meeting.begun == done) return;
      bool more = true;
      unlocked(lock, [&] {
        more = elements_.read_next(member.first, member.count, done, watch_of(member));
        compute(group, member, done);
      });
      meeting.more = meeting.more && more;
      ++meeting.back;
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

  // The leader's, of the whole group. False where the input of one of its replicas has ended.
  bool make_step(AsyncGroup& group, std::uint64_t number) {
    auto& leader = group.members[0];
    const bool more = elements_.read_next(leader.first, leader.count, number, watch_of(leader));
    auto& shards = programs_.shards();
    for (std::size_t s = 0; s < shards.size(); ++s) read(s, group, leader.device);
    begin_members(group, more);
    compute(group, leader, number);
    const bool all_more = await_members(group);
    for (std::size_t s = 0; s < shards.size(); ++s) update(s, group, leader.device);
    return all_more;
  }
  void read(std::size_t s, const AsyncGroup& group, int device) {
    auto& shard = *programs_.shards()[s];
    if (shard.gate) shard.gate->read(group.index, [&] { programs_.copies().pull(s, device); });
    else peers_->client(device).read(shard.owner, group.index, s, programs_.copies().values_at(s, device));
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
  void begin_members(const AsyncGroup& group, bool more) {
    {
      const std::lock_guard lock{mutex_};
      auto& meeting = meeting_of(group);
      meeting = {meeting.begun + 1, 0, more};
    }
    changed_.notify_all();
  }
  bool await_members(const AsyncGroup& group) {
    std::unique_lock lock{mutex_};
    const auto& meeting = meeting_of(group);
    changed_.wait(lock, [&] { return error_ || meeting.back + 1 == group.members.size(); });
    if (error_) std::rethrow_exception(error_);
    return meeting.more;
  }
  // The step of a member's replicas, of the elements that they have; then the next ones are theirs.
  void compute(const AsyncGroup& group, AsyncMember& member, std::uint64_t number) {
    try {
      execute(member.program, elements_.of(member.first, member.count),
              {.seed = programs_.seed(), .step = number, .deadline = deployment_.deadline, .capture = deployment_.capture});
    } catch (const CommunicationError& error) {
      throw CommunicationError{programs_.placement().text(group.index) + ", counted from 0 in what follows: " + error.what(),
                               programs_.placement().process()};
    }
    elements_.advance(member.first, member.count);
  }
  std::vector<std::vector<AnyArray>> results_of(const AsyncGroup& group) const {
    std::vector<std::vector<AnyArray>> results(programs_.results().size());
    for (std::size_t k = 0; k < results.size(); ++k)
      for (const auto& member : group.members)
        for (int r = 0; r < member.count; ++r)
          results[k].push_back(member.program.results[k][member.program.uniform_result[k] ? 0 : static_cast<std::size_t>(r)]);
    return results;
  }
  // Locked. The first one counts. Whoever waits at a shard, or for the others of a group, is released.
  void keep(const std::exception_ptr& error) {
    if (error_) return;
    error_ = error;
    for (auto& shard : programs_.shards())
      if (shard->gate) shard->gate->abort(error);
    for (auto& group : programs_.groups()) group->wire->abort({"another replica failed", 0});
    if (peers_) release_(error);
    changed_.notify_all();
  }

  // --- the server's thread -----------------------------------------------------------------------------------------------------
  void hear(const ShardCall& call, std::span<const std::byte> results) override {
    AsyncReport report{call.steps, call.ended != 0, programs_.results().unpack(results)};
    {
      const std::lock_guard lock{mutex_};
      progress_.hear(call.group, std::move(report));
    }
    changed_.notify_all();
  }
  void hear_left(int process) override {
    {
      const std::lock_guard lock{mutex_};
      progress_.hear_left(process);
    }
    changed_.notify_all();
  }
  void hear_pause(int process, std::uint64_t steps, std::uint64_t meetings) override {
    {
      const std::lock_guard lock{mutex_};
      progress_.hear_pause(process, steps, meetings);
    }
    changed_.notify_all();
  }
  void fail(const std::exception_ptr& error) override {
    const std::lock_guard lock{mutex_};
    keep(error);
  }

  // --- the calling thread ----------------------------------------------------------------------------------------------------
  // Every step that steps() counts begins the wait anew. awaited(): the groups.
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
  void stop() {
    {
      std::unique_lock lock{mutex_};
      stop_ = true;
      changed_.notify_all();
      const auto at_rest = [this] { return std::find(serving_.begin(), serving_.end(), true) == serving_.end(); };
      DeadlineWait{{.late = deployment_.late}}.wait(changed_, lock, at_rest, [this] { tell_wait(); });
    }
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  // Locked, when no further step is begun.
  std::vector<int> groups_in_step() const {
    std::vector<int> groups;
    for (const auto& group : programs_.groups()) {
      const auto follows = [this](const AsyncMember& member) { return serving_[static_cast<std::size_t>(member.device)]; };
      if (progress_.is_busy(group->index) || std::any_of(group->members.begin() + 1, group->members.end(), follows)) groups.push_back(group->index);
    }
    return groups;
  }
  // Locked. A replica that waits for its input, or for what a host_callback waits for, has no deadline, and who catches the error has not seen it yet.
  void tell_wait() const {
    const auto error = error_ ? ", after an error: " + text_of(error_) : "";
    std::fprintf(stderr, "replicator: the program makes no further step, and waits for the end of one of %s%s\n", text(groups_in_step()).c_str(), error.c_str());
  }
  // From the other processes, which may have steps to make yet.
  void part() {
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
  void tell_error() const { std::fprintf(stderr, "replicator: at the end of a step object: %s\n", text_of(error_).c_str()); }
  std::string text(const std::vector<int>& groups) const {
    std::string text;
    for (const int group : groups)
      text += (text.empty() ? "" : ", ") + programs_.placement().text(group) + " (at step " + std::to_string(progress_.steps(group)) + ")";
    return text.empty() ? "no replica: none is at work" : text;
  }
  CommunicationError late_error(const std::vector<int>& awaited) const {
    return {"no step was done until the deadline; at work: " + text(awaited) +
                ". Who is at work is stopped or slow: look there, or allow more time with --deadline",
            -1};
  }

  const Deployment& deployment_;
  AsyncPrograms& programs_;
  AsyncPeers* peers_;
  std::function<void(const std::exception_ptr&)> release_;
  int exceptions_at_start_ = std::uncaught_exceptions();
  AsyncElements elements_;  // each replica's the thread's of its device
  std::vector<std::unique_ptr<InputWatch>> watches_;  // by device
  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  AsyncProgress progress_;
  std::vector<Meeting> meetings_;  // by group of this process
  std::exception_ptr error_;
  bool thrown_ = false;
  bool stop_ = false;
  std::vector<bool> serving_;  // by device: its thread is at its work
  std::vector<std::thread> threads_;
};

}  // namespace replicator
