// SPDX-License-Identifier: Apache-2.0
// A wait for a peer with two limits: it warns once when the peer is late, and fails at a deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace replicator::detail {

// The limits of a wait, counted from its start. Zero means no limit.
struct WaitLimits {
  std::chrono::nanoseconds deadline{};  // after this time the wait fails
  std::chrono::nanoseconds late{};      // after this time the wait warns, once
};

// For one thread. The caller supplies the warning and handles the deadline.
class DeadlineWait {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // The wait begins at `now`.
  explicit DeadlineWait(const WaitLimits& limits, Time now = Clock::now()) : limits_{limits}, end_{after(now, limits.deadline)}, late_{after(now, limits.late)} {}

  // Time::max() without a deadline.
  Time deadline() const { return end_; }
  // The latest time until which the caller may sleep: the deadline or the warning, whichever is earlier.
  Time next() const { return std::min(end_, late_); }
  bool is_over(Time now) const { return now >= end_; }
  // Returns true once, at the first call after the warning time.
  bool becomes_late(Time now) {
    if (now < late_) return false;
    late_ = Time::max();
    return true;
  }
  // Starts the wait for the next peer. A warning that was already given is not repeated.
  void restart(Time now = Clock::now()) {
    end_ = after(now, limits_.deadline);
    if (late_ != Time::max()) late_ = after(now, limits_.late);
  }

  // Calls sleep(until) until it returns true. `sleep` returns true once the awaited event has happened. It returns
  // false at `until`, not before. Calls tell() once when the wait is late. Returns false at the deadline.
  template <class Sleep, class Tell>
  bool wait(Sleep sleep, Tell tell) {
    while (!sleep(next())) {
      if (end_ <= late_) return false;
      late_ = Time::max();
      tell();
    }
    return true;
  }
  // The same on a condition variable. Calls done() and tell() under the lock.
  template <class Done, class Tell>
  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Done done, Tell tell) {
    return wait([&](Time until) { return sleep(changed, lock, until, done); }, std::move(tell));
  }

 private:
  static Time after(Time begin, std::chrono::nanoseconds time) { return time.count() > 0 ? begin + time : Time::max(); }
  template <class Done>
  static bool sleep(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Time until, Done& done) {
    if (until != Time::max()) return changed.wait_until(lock, until, done);
    changed.wait(lock, done);
    return true;
  }

  WaitLimits limits_;
  Time end_, late_;
};

}  // namespace replicator::detail
