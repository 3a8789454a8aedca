// SPDX-License-Identifier: Apache-2.0
// CallHistory: the rollback log of an elastic engine. It keeps the two latest snapshots and the program's later calls,
// which are repeated after a rollback.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/elastic/restartable_steps.hpp>
#include <replicator/engine/host.hpp>
#include <replicator/engine/state/snapshot.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// The state before a call of the program.
struct Moment {
  Snapshot snapshot;
  std::map<std::shared_ptr<RestartableStep>, Resumption> restartables;  // the progress of the steps
};

// The two latest snapshots, and the calls since the earlier one. Calls are numbered. Call 0 has no snapshot: nothing
// has happened before it.
class CallHistory {
 public:
  using Work = std::function<void()>;

  const Snapshot& latest() const { return latest_.snapshot; }

  // The program makes its next call, or repeats it after a rollback. Nothing of the call has happened yet.
  void begin_call() { at_ = next_; }
  // `again`: repeats the call and drops its result, which the program already has. It is kept only if `may_return`.
  void end_call(const Work& again, bool may_return) {
    if (may_return) calls_.push_back({next_, again});
    ++next_;
  }

  // Collective: every process takes a snapshot, before the same call. If it throws CommunicationError, nothing has
  // changed.
  void remember(Host& host, RestartableSteps& restartables) {
    auto& moment = latest_.snapshot.call == at_ ? latest_ : previous_;
    host.remember(moment.snapshot);
    moment.snapshot.call = at_;
    moment.restartables.clear();
    for (const auto& restartable : restartables.all()) moment.restartables[restartable] = restartable->from;
    if (&moment == &previous_) std::swap(latest_, previous_);
    std::erase_if(calls_, [this](const Call& call) { return call.number < previous_.snapshot.call; });
    restartables.forget_expired();
  }
  // Restores on a new host the snapshot before this call. Throws BuildError if it is neither of the two.
  void go_back_to(std::uint64_t call, Host& host) {
    if (latest_.snapshot.call != call) latest_ = std::exchange(previous_, {});
    if (latest_.snapshot.call != call)
      throw BuildError{"the processes of this job have made different calls: all must run the same steps in the same order"};
    previous_ = {};
    previous_.snapshot.call = call;
    std::erase_if(calls_, [&](const Call& made) { return made.number < call; });
    if (call == 0) return;
    host.recall(latest_.snapshot);
    for (const auto& [restartable, from] : latest_.restartables) restartable->from = from;
  }
  // Repeats all calls since the restored snapshot.
  void repeat() {
    const auto calls = calls_;
    for (const auto& call : calls) {
      at_ = call.number;
      call.again();
    }
  }
  // Takes over the state of the other processes, from the snapshot that this process has received.
  void go_on_from(Moment moment) {
    latest_ = std::move(moment);
    previous_ = {};
    calls_.clear();
    next_ = latest_.snapshot.call;
  }

 private:
  struct Call {
    std::uint64_t number;
    Work again;
  };

  Moment latest_, previous_;
  std::deque<Call> calls_;
  std::uint64_t next_ = 0;  // the number of the call that the program makes next
  std::uint64_t at_ = 0;    // the number of the call that is being made, perhaps as a repetition
};

// Collective: returns the newest snapshot that every process has, as the number of its call. It also spreads a stop
// signal. A process that knows the signal learned it from its last step; the others learn it here, before they repeat
// that step. Throws CommunicationError.
inline std::uint64_t oldest_moment(transport::Job& job, std::uint64_t latest, int& stop_signal) {
  static constexpr const char* what = "the moment to go back to";
  const std::uint64_t mine[] = {latest, static_cast<std::uint64_t>(stop_signal)};
  const auto all = job.exchange(std::as_bytes(std::span{mine}), what);
  std::uint64_t oldest = latest;
  for (int process = 0; process < job.size(); ++process) {
    const auto& part = all[static_cast<std::size_t>(process)];
    transport::require_contribution(part.size() == sizeof mine, process, part.size(), what);
    std::uint64_t theirs[2] = {};
    std::memcpy(theirs, part.data(), sizeof theirs);
    oldest = std::min(oldest, theirs[0]);
    stop_signal = std::max(stop_signal, static_cast<int>(theirs[1]));
  }
  return oldest;
}

}  // namespace replicator::detail
