// SPDX-License-Identifier: Apache-2.0
// One wait for somebody else: says once that it takes long, and ends at a deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace replicator::detail {

// How long a wait may take: times after its beginning. Zero means never.
struct WaitLimits {
  std::chrono::nanoseconds deadline{};  // the wait fails
  std::chrono::nanoseconds late{};      // somebody is told of it, once
};

// Used by one thread. The words, and what happens at the deadline, are the caller's.
class DeadlineWait {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // The wait begins at `now`.
  explicit DeadlineWait(const WaitLimits& limits, Time now = Clock::now()) : limits_{limits}, end_{after(now, limits.deadline)}, late_{after(now, limits.late)} {}

  // Time::max() where there is none.
  Time deadline() const { return end_; }
  // The next time at which something is to be done: whoever waits sleeps no longer than that.
  Time next() const { return std::min(end_, late_); }
  bool is_over(Time now) const { return now >= end_; }
  // True once: it is time to say that the wait takes long.
  bool becomes_late(Time now) {
    if (now < late_) return false;
    late_ = Time::max();
    return true;
  }
  // Somebody has come, and the wait is for the next one. Nothing is said of that where it has been said already.
  void restart(Time now = Clock::now()) {
    end_ = after(now, limits_.deadline);
    if (late_ != Time::max()) late_ = after(now, limits_.late);
  }

  // sleep(until) waits, and returns whether what it waits for is there; it returns false at `until`, and not before. Calls tell() when it is late;
  // at the deadline returns false.
  template <class Sleep, class Tell>
  bool wait(Sleep sleep, Tell tell) {
    while (!sleep(next())) {
      if (end_ <= late_) return false;
      late_ = Time::max();
      tell();
    }
    return true;
  }
  // The same on a condition variable. done() and tell() are called with the lock.
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
