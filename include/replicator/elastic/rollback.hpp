// SPDX-License-Identifier: Apache-2.0
// Rollback: the two latest moments of a process, the calls that its program made since, and the moment to which all
// processes of a job go back. Knows no engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// `Moment`: the state before a call of the program. Calls are numbered. Call 0 has no moment: nothing has happened before it.
template <class Moment>
class Rollback {
 public:
  using Work = std::function<void()>;

  const Moment& latest() const { return latest_.moment; }
  std::uint64_t latest_call() const { return latest_.call; }

  // The program makes its next call, or repeats it after a rollback. Nothing of the call has happened yet.
  void begin_call() { at_ = next_; }
  // `again`: repeats the call and drops its result, which the program already has. It is kept only if `may_return`.
  void end_call(const Work& again, bool may_return) {
    if (may_return) calls_.push_back({next_, again});
    ++next_;
  }

  // Takes a moment before the present call, by take(moment, call). If that throws, nothing has changed.
  template <class Take>
  void remember(Take take) {
    auto& place = latest_.call == at_ ? latest_ : previous_;
    take(place.moment, at_);
    place.call = at_;
    if (&place == &previous_) std::swap(latest_, previous_);
    std::erase_if(calls_, [this](const Call& call) { return call.number < previous_.call; });
  }
  // Returns the moment before this call; null for call 0. Throws BuildError if it is neither of the two.
  const Moment* go_back_to(std::uint64_t call) {
    if (latest_.call != call) latest_ = std::exchange(previous_, {});
    if (latest_.call != call)
      throw BuildError{"the processes of this job have made different calls: all must run the same steps in the same order"};
    previous_ = {};
    previous_.call = call;
    std::erase_if(calls_, [&](const Call& made) { return made.number < call; });
    return call == 0 ? nullptr : &latest_.moment;
  }
  // Repeats all calls since the restored moment.
  void repeat() {
    const auto calls = calls_;
    for (const auto& call : calls) {
      at_ = call.number;
      call.again();
    }
  }
  // Takes over the state of the other processes, which they have before this call.
  void go_on_from(std::uint64_t call, Moment moment) {
    latest_ = {call, std::move(moment)};
    previous_ = {};
    calls_.clear();
    next_ = call;
  }

 private:
  struct Numbered {
    std::uint64_t call = 0;
    Moment moment{};
  };
  struct Call {
    std::uint64_t number;
    Work again;
  };

  Numbered latest_, previous_;
  std::deque<Call> calls_;
  std::uint64_t next_ = 0;  // the number of the call that the program makes next
  std::uint64_t at_ = 0;    // the number of the call that is being made, perhaps as a repetition
};

// Collective: returns the newest moment that every process has, as the number of its call. It also spreads a stop
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
