// SPDX-License-Identifier: Apache-2.0
// AsyncProgress: counts the steps of every group of the job in the asynchronous regime, as far as this process knows
// them. It decides when a call of step() is done, and which call was the last.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>

namespace replicator::detail {

// The report of a group about a step that it has made.
struct AsyncReport {
  std::uint64_t steps = 0;                       // all steps of the group so far, including this one
  bool ended = false;                            // its input has ended, so it makes no further step
  std::vector<std::vector<AnyArray>> results{};  // of this step: [result][replica of the group]
};

// With G groups, n calls of a step that updates variables are done after n G updates of any groups. Each group must
// also have made one. In a step without updates each group makes one step for each call. Processes may be at different
// calls.
//
// A group makes no more steps once its input has ended or its process has left. A process leaves with its last call. A
// group pauses when its process has come to a barrier of all processes. Not thread-safe.
class AsyncProgress {
 public:
  // `process_of_group`: indexed by group of the job. `process`: this one. `updates`: the step updates variables.
  AsyncProgress(const std::vector<int>& process_of_group, int process, bool updates) : process_{process}, updates_{updates} {
    for (const int owner : process_of_group) groups_.push_back({.process = owner});
  }

  // --- calls of this process's program ---------------------------------------------------------------------------------------------
  // `barriers`: the number of barriers of all processes so far.
  void call(std::uint64_t barriers) {
    ++calls_;
    barriers_ = barriers;
    for (auto& group : groups_)
      if (auto report = std::exchange(group.early, std::nullopt)) count(group, std::move(*report));
  }
  // True if the calls so far are done, or if no group is left that could make a step.
  bool enough() const {
    if (!updates_) return all([this](const Group& group) { return group.steps >= calls_; });
    return all_over() || (completed_ >= wanted() && all([](const Group& group) { return group.steps > 0; }));
  }
  // A group that must make a step for this call but cannot, because its process has left or come to a barrier.
  std::optional<int> missing() const {
    const auto least = updates_ ? 1 : calls_;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (!groups_[g].ended && is_over(groups_[g]) && groups_[g].steps < least) return static_cast<int>(g);
    return std::nullopt;
  }
  // Called after a call: true if no more calls can be made. All processes get the same answer after the same call,
  // although reports reach them at different times:
  // - If the last event was the end of an input, its report has been counted.
  // - News that a process has left arrives later. Then the call has found too few updates.
  bool ended() const {
    const auto input_ended = [](const Group& group) { return group.ended; };
    if (!updates_) return std::any_of(groups_.begin(), groups_.end(), input_ended);
    if (all(input_ended)) return completed_ <= wanted();
    return all_over() && completed_ < wanted();
  }

  // --- groups of this process ----------------------------------------------------------------------------------------------------
  // True if the group should make a step now.
  bool wants(int group) const {
    const auto& one = at(group);
    return calls_ > 0 && !one.ended && !one.busy && is_needed(one);
  }
  void begin(int group) { at(group).busy = true; }
  void count(int group, AsyncReport report) { count(at(group), std::move(report)); }
  // The group has also reported the step to the other processes.
  void rest(int group) { at(group).busy = false; }
  bool is_busy(int group) const { return at(group).busy; }
  std::vector<int> busy() const {
    return those([](const Group& group) { return group.busy; });
  }

  // --- other processes ------------------------------------------------------------------------------------------------------------
  void hear(int group, AsyncReport report) {
    auto& one = at(group);
    if (!updates_ && report.steps > calls_) one.early = std::move(report);  // that process is one call ahead of this one
    else count(one, std::move(report));
  }
  // The process has left; all steps of its groups have been reported before.
  void hear_left(int process) {
    for (auto& group : groups_) group.left = group.left || group.process == process;
  }
  // The groups of the process rest until all processes have met once more. Together they have made `steps`. Some of
  // these may not have been reported yet.
  void hear_pause(int process, std::uint64_t steps, std::uint64_t barriers) { pauses_[process] = {steps, barriers}; }

  // --- queries -----------------------------------------------------------------------------------------------------------------
  std::uint64_t calls() const { return calls_; }
  std::uint64_t completed() const { return completed_; }  // by all groups together
  std::uint64_t steps(int group) const { return at(group).steps; }
  // Sum over all groups of a process.
  std::uint64_t steps_of(int process) const {
    std::uint64_t sum = 0;
    for (const auto& group : groups_) sum += group.process == process ? group.steps : 0;
    return sum;
  }
  // The results of the latest steps, by replica.
  std::vector<AnyArray> results(std::size_t result) const {
    std::vector<AnyArray> results;
    for (const auto& group : groups_)
      if (result < group.results.size()) results.insert(results.end(), group.results[result].begin(), group.results[result].end());
    return results;
  }
  // The groups that may still make a step that the calls need. A group of this process counts only during a step.
  std::vector<int> running() const {
    return those([this](const Group& group) { return is_needed(group) && (group.process == process_ ? group.busy : !is_over(group)); });
  }

 private:
  struct Group {
    int process;
    std::uint64_t steps = 0;
    bool busy = false;
    bool ended = false;  // its input has ended
    bool left = false;   // its process has left
    std::vector<std::vector<AnyArray>> results{};
    std::optional<AsyncReport> early{};  // in a step without updates: a report for a call that this process has not made yet
  };
  struct Pause {
    std::uint64_t steps, barriers;
  };
  bool is_over(const Group& group) const { return group.ended || group.left || is_paused(group.process); }
  bool is_paused(int process) const {
    const auto pause = pauses_.find(process);
    return pause != pauses_.end() && pause->second.barriers == barriers_ && pause->second.steps == steps_of(process);
  }
  bool all_over() const {
    return all([this](const Group& group) { return is_over(group); });
  }
  bool is_needed(const Group& group) const {
    if (!updates_) return group.steps < calls_;
    return completed_ < wanted() || group.steps == 0;
  }
  template <class Predicate>
  std::vector<int> those(Predicate holds) const {
    std::vector<int> result;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (holds(groups_[g])) result.push_back(static_cast<int>(g));
    return result;
  }
  template <class Predicate>
  bool all(Predicate holds) const {
    return std::all_of(groups_.begin(), groups_.end(), holds);
  }
  std::uint64_t wanted() const { return calls_ * groups_.size(); }
  Group& at(int group) { return groups_[static_cast<std::size_t>(group)]; }
  const Group& at(int group) const { return groups_[static_cast<std::size_t>(group)]; }
  void count(Group& group, AsyncReport report) {
    group.steps = report.steps;
    group.ended = report.ended;
    group.results = std::move(report.results);
    ++completed_;
  }

  int process_;
  bool updates_;
  std::vector<Group> groups_;    // of the job
  std::map<int, Pause> pauses_;  // by process: its latest pause
  std::uint64_t calls_ = 0;      // of this process
  std::uint64_t barriers_ = 0;   // before the latest call
  std::uint64_t completed_ = 0;  // steps of all groups together
};

}  // namespace replicator::detail
