// SPDX-License-Identifier: Apache-2.0
// The busy wait before a thread sleeps.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <replicator/core/processor.hpp>
#include <replicator/devices/usable_cores.hpp>
#include <replicator/transport/transport.hpp>

namespace replicator::detail::transport {

// Repeats a look at shared state until it succeeds or it is time to sleep. Threads may share one.
class Spin {
 public:
  // What to do where threads outnumber cores:
  // - give_way: for waits on each other's memory. A thread that yields between two looks passes the core on within 1 or 2
  //   us. A sleeping thread must be woken, which takes 20 to 45 us.
  // - sleep: for waits on messages of the system. A message wakes the thread when it comes, and polling takes the time that
  //   its delivery needs.
  enum class Crowded {
    give_way,
    sleep
  };

  // `threads` threads wait for each other, and have `cores` cores together.
  Spin(int threads, int cores, Crowded crowded = Crowded::give_way)
      : crowded_{threads > cores}, longest_{crowded_ && crowded == Crowded::sleep ? 0 : 100} {}
  // For `threads` threads that the calling one starts, on the cores that it may use.
  explicit Spin(int threads) : Spin{threads, usable_cores()} {}

  bool crowded() const { return crowded_; }

  // Calls look() until it is true, and returns true. Returns false at the time `until`, or when it is time to sleep. `look`
  // makes progress and is called at least once.
  template <class Look>
  bool operator()(Look&& look, Clock::time_point until) const {
    const auto end = std::min(until, Clock::now() + longest_);
    for (;;) {
      if (look()) return true;
      if (Clock::now() >= end) return false;
      if (crowded_) ::sched_yield();
      else pause_briefly();
    }
  }

 private:
  bool crowded_;
  // How long a rank looks before it sleeps. It must be longer than waking a peer takes (30 us were measured). Otherwise two
  // ranks that have slept once would wake each other at every later step. 0 where threads outnumber cores.
  std::chrono::microseconds longest_;
};

}  // namespace replicator::detail::transport
