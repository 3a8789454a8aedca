// SPDX-License-Identifier: Apache-2.0
// StopAgreement: makes all processes stop after the same call of step() when one of them catches a signal. It is needed
// because in the asynchronous regime the programs are at different calls.
#pragma once

#include <algorithm>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>

#include <replicator/core/deadline_wait.hpp>
#include <replicator/core/error.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/stop_on_signal.hpp>

namespace replicator::detail {

// All processes make the same calls of step(), of any of their steps, and count them. A process that has caught a
// signal asks all others for their votes. A vote is the first call after which the process can stop: its current call,
// or else its next. The agreed call is the largest vote.
//
// A process does not return from the call that it voted for until it knows the agreed one, so no process has passed
// that. A process has one vote, even if several processes ask, so all agree on the same call.
//
//   process 0:  call 7 ......... votes 7 ......... learns of 9, call 8, call 9, stops
//   process 1:         call 9 .. votes 9, asks ... tells of 9 ................. stops
//
// Calls are counted from the last barrier of all processes, because before it one process may have made fewer calls
// than another. Thread-safe, but only the program's thread may call end_call and end_barrier.
class StopAgreement {
 public:
  struct Vote {
    std::uint64_t barrier = 0, call = 0;  // call: counted from 1, since the barrier
    std::int64_t signal = 0;              // the signal that the process has caught; 0: none
    friend bool operator==(const Vote&, const Vote&) = default;
  };

  // `job` outlives this object.
  StopAgreement(transport::Job& job, const WaitLimits& limits) : job_{job}, limits_{limits}, hook_{job.on_abort([this] { wake(); })} {}
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // The later of two votes, which suits both processes.
  static Vote both(const Vote& a, const Vote& b) {
    auto later = moment(a) < moment(b) ? b : a;
    later.signal = std::max(a.signal, b.signal);
    return later;
  }
  // True if this process has caught a signal and no process has asked for votes yet.
  bool is_due() const {
    const std::lock_guard lock{mutex_};
    return !vote_ && job_.size() > 1 && StopOnSignal::received() != 0;
  }
  // True if a vote is open: end_call and end_barrier may wait for its outcome.
  bool is_open() const {
    const std::lock_guard lock{mutex_};
    return vote_ && !agreed_;
  }
  // The vote of this process, for the process `asker`, which will announce the agreed call.
  Vote vote(int asker) {
    const std::lock_guard lock{mutex_};
    if (!vote_) {
      vote_ = Vote{barriers_, call_ + 1, StopOnSignal::received()};
      asker_ = asker;
    }
    return *vote_;
  }
  // Takes the agreed call. Returns false, and does nothing, if this process has not voted or has voted for a later
  // call.
  bool agree(const Vote& agreed) {
    {
      const std::lock_guard lock{mutex_};
      if (!vote_ || moment(agreed) < moment(*vote_) || (agreed_ && moment(*agreed_) != moment(agreed))) return false;
      agreed_ = agreed;
    }
    changed_.notify_all();
    return true;
  }

  // A call of step() is done. If this process has voted for this call, end_call and end_barrier wait for the agreed
  // one. They throw CommunicationError when the job is aborted, or at the deadline.
  void end_call() {
    std::unique_lock lock{mutex_};
    go_on(lock, {barriers_, call_ + 1});
  }
  // All processes have met.
  void end_barrier() {
    std::unique_lock lock{mutex_};
    go_on(lock, {barriers_ + 1, 0});
  }
  // The number of barriers so far.
  std::uint64_t barriers() const {
    const std::lock_guard lock{mutex_};
    return barriers_;
  }
  // The signal for which all processes stop now; 0: none. Processes at the same call get the same answer. The value
  // stays.
  int signal() {
    const std::lock_guard lock{mutex_};
    if (job_.size() == 1) signal_ = std::max(signal_, StopOnSignal::received());
    return signal_;
  }

 private:
  struct Moment {
    std::uint64_t barrier, call;
    friend auto operator<=>(const Moment&, const Moment&) = default;
  };
  void wake() {
    { const std::lock_guard lock{mutex_}; }  // a waiting thread has then either not looked yet, or sleeps already
    changed_.notify_all();
  }
  static Moment moment(const Vote& vote) { return {vote.barrier, vote.call}; }

  // Moves to `next`. Before that it waits if this process has voted for the present call.
  void go_on(std::unique_lock<std::mutex>& lock, const Moment& next) {
    if (vote_ && !agreed_) await_agreement(lock);
    barriers_ = next.barrier;
    call_ = next.call;
    if (agreed_ && next >= moment(*agreed_)) signal_ = static_cast<int>(agreed_->signal);
  }
  void await_agreement(std::unique_lock<std::mutex>& lock) {
    const auto known = [this] { return agreed_ || job_.aborted(); };
    DeadlineWait{limits_}.wait(changed_, lock, known, [this] { std::fprintf(stderr, "replicator: waiting for %s\n", awaited().c_str()); });
    if (agreed_) return;
    job_.check();
    throw CommunicationError{"waited until the deadline for " + awaited() + ". It is stopped or slow: look there, or allow more time with --deadline",
                             asker_};
  }
  std::string awaited() const { return job_.describe(asker_) + ", which has caught a signal, to tell after which call of step() all processes stop"; }

  transport::Job& job_;
  WaitLimits limits_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::uint64_t barriers_ = 0, call_ = 0;  // the last call that the program has finished
  std::optional<Vote> vote_, agreed_;
  int asker_ = -1;
  int signal_ = 0;
  transport::Job::Hook hook_;  // the last member, because it uses the others
};

}  // namespace replicator::detail
