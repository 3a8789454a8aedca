// SPDX-License-Identifier: Apache-2.0
// After which call of a step all processes stop for a signal, where their programs are at different calls: in the asynchronous regime.
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

namespace replicator {

// All processes make the same calls of step(), of whichever step, and count them. Who has caught a signal asks all for their votes: the first call
// after which a process can stop, which is the one that it is at, or else its next. It does not return from that one before it knows what was agreed:
// the last of all votes. So nobody is past that. A process has one vote, however many ask: they agree on the same call.
//
//   process 0:  call 7 ......... votes 7 ......... learns of 9, call 8, call 9, stops
//   process 1:         call 9 .. votes 9, asks ... tells of 9 ................. stops
//
// Where processes meet, calls are counted from there: before, one may have made fewer than another. Any thread may call any function, except that
// end_call and end_meeting are for the program's.
class StopAgreement {
 public:
  struct Vote {
    std::uint64_t meeting = 0, call = 0;  // from 1, since the meeting
    std::int64_t signal = 0;              // that the process had caught; 0: none
    friend bool operator==(const Vote&, const Vote&) = default;
  };

  // The job outlives this.
  StopAgreement(transport::Job& job, const WaitLimits& limits) : job_{job}, limits_{limits}, hook_{job.on_abort([this] { wake(); })} {}
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // What two of those who vote can both do, and all.
  static Vote both(const Vote& a, const Vote& b) {
    auto later = moment(a) < moment(b) ? b : a;
    later.signal = std::max(a.signal, b.signal);
    return later;
  }
  // This process has caught a signal, and nobody has asked for votes.
  bool is_due() const {
    const std::lock_guard lock{mutex_};
    return !vote_ && job_.size() > 1 && StopOnSignal::received() != 0;
  }
  // Votes have been asked for, and what was agreed is not known yet: end_call and end_meeting would wait.
  bool is_open() const {
    const std::lock_guard lock{mutex_};
    return vote_ && !agreed_;
  }
  // For the process `asker`, which will tell what was agreed.
  Vote vote(int asker) {
    const std::lock_guard lock{mutex_};
    if (!vote_) {
      vote_ = Vote{meeting_, call_ + 1, StopOnSignal::received()};
      asker_ = asker;
    }
    return *vote_;
  }
  // False, and nothing is done, for what cannot be: this process has no vote, or has voted for a later call.
  bool agree(const Vote& agreed) {
    {
      const std::lock_guard lock{mutex_};
      if (!vote_ || moment(agreed) < moment(*vote_) || (agreed_ && moment(*agreed_) != moment(agreed))) return false;
      agreed_ = agreed;
    }
    changed_.notify_all();
    return true;
  }

  // A call of step() is done. This and end_meeting wait for what is being agreed where this process has voted not to go on without it, and throw
  // CommunicationError when the job is aborted, or at the deadline.
  void end_call() {
    std::unique_lock lock{mutex_};
    go_on(lock, {meeting_, call_ + 1});
  }
  // All processes have met.
  void end_meeting() {
    std::unique_lock lock{mutex_};
    go_on(lock, {meeting_ + 1, 0});
  }
  // That have ended.
  std::uint64_t meetings() const {
    const std::lock_guard lock{mutex_};
    return meeting_;
  }
  // For which all stop now: processes that are at the same call find the same. It stays. 0: none.
  int signal() {
    const std::lock_guard lock{mutex_};
    if (job_.size() == 1) signal_ = std::max(signal_, StopOnSignal::received());
    return signal_;
  }

 private:
  struct Moment {
    std::uint64_t meeting, call;
    friend auto operator<=>(const Moment&, const Moment&) = default;
  };
  void wake() {
    { const std::lock_guard lock{mutex_}; }  // who waits has looked, or will
    changed_.notify_all();
  }
  static Moment moment(const Vote& vote) { return {vote.meeting, vote.call}; }

  // To what lies behind the call that this process has voted for, or is it.
  void go_on(std::unique_lock<std::mutex>& lock, const Moment& next) {
    if (vote_ && !agreed_) await_agreement(lock);
    meeting_ = next.meeting;
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
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::uint64_t meeting_ = 0, call_ = 0;  // where the program is: behind this one
  std::optional<Vote> vote_, agreed_;
  int asker_ = -1;
  int signal_ = 0;
  transport::Job::Hook hook_;  // the last: it uses the rest
};

}  // namespace replicator
