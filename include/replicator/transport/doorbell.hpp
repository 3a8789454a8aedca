// SPDX-License-Identifier: Apache-2.0
// A futex in shared memory that wakes a thread of another process, which sleeps until memory changes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace replicator::detail::transport::detail {

// Lies in shared memory, zero at first. std::atomic::wait would use a private futex, which other processes cannot wake.
struct alignas(64) Doorbell {
  std::uint32_t rings;
  std::uint32_t asleep;
};

// Orders a store before a load. The ringer writes its data before it looks for a sleeper. The sleeper announces itself
// before it looks at the data once more. So at least one of them sees the other.
inline void full_fence() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"  // for the names of warnings that another compiler does not have
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wtsan"  // it ignores fences, but the data is passed by acquire and release, which it follows
  std::atomic_thread_fence(std::memory_order_seq_cst);
#pragma GCC diagnostic pop
}

// Wakes the owner if it sleeps, or is about to sleep.
inline void ring(Doorbell& bell) {
  std::atomic_ref{bell.rings}.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// The same, to be called after a full_fence() or a seq_cst store. Cheap when nobody sleeps.
inline void ring_if_asleep(Doorbell& bell) {
  if (std::atomic_ref{bell.asleep}.load(std::memory_order_seq_cst) != 0) ring(bell);
}

// While it lives, the owner counts as asleep. First construct it, then look at the data, then sleep().
class Sleeper {
 public:
  explicit Sleeper(Doorbell& bell) : bell_{bell} {
    std::atomic_ref{bell_.asleep}.store(1, std::memory_order_relaxed);
    seen_ = std::atomic_ref{bell_.rings}.load(std::memory_order_acquire);
    full_fence();
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() { std::atomic_ref{bell_.asleep}.store(0, std::memory_order_relaxed); }

  // Returns when the bell was rung since construction, at `until`, or spuriously.
  void sleep(std::chrono::steady_clock::time_point until) {
    const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now());
    const std::int64_t limit = std::clamp<std::int64_t>(rest.count(), 0, 60'000'000'000);
    const timespec time{static_cast<time_t>(limit / 1'000'000'000), static_cast<long>(limit % 1'000'000'000)};
    ::syscall(SYS_futex, &bell_.rings, FUTEX_WAIT, seen_, &time, nullptr, 0);
  }

 private:
  Doorbell& bell_;
  std::uint32_t seen_;
};

}  // namespace replicator::detail::transport::detail
