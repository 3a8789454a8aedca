// SPDX-License-Identifier: Apache-2.0
// How a wait waits before it sleeps.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <replicator/devices/usable_cores.hpp>
#include <replicator/transport/transport.hpp>

namespace replicator::detail::transport {

// Looks again and again for what others do. Threads may share one.
class Spin {
 public:
  // Where not everybody has a core. Those that wait for each other's memory and give way between two looks pass the core on within a microsecond
  // or two; one that sleeps has to be woken, which takes 20 to 45. Who waits for messages of the system is woken when they come: looking for
  // them takes the time that brings them.
  enum class Crowded {
    give_way,
    sleep
  };

  // So many threads wait for each other, which have so many cores together.
  Spin(int threads, int cores, Crowded crowded = Crowded::give_way)
      : crowded_{threads > cores}, longest_{crowded_ && crowded == Crowded::sleep ? 0 : 100} {}
  // Threads that the calling one starts.
  explicit Spin(int threads) : Spin{threads, usable_cores()} {}

  bool crowded() const { return crowded_; }

  // Until look() is true (then it is), the time `until`, or it is time to sleep. look() makes progress, and is called at least once.
  template <class Look>
  bool operator()(Look&& look, Clock::time_point until) const {
    const auto end = std::min(until, Clock::now() + longest_);
    for (;;) {
      if (look()) return true;
      if (Clock::now() >= end) return false;
      if (crowded_) ::sched_yield();
      else __builtin_ia32_pause();
    }
  }

 private:
  bool crowded_;
  // More than it takes to wake a peer (30 us have been seen), or two that have slept once would wake each other at every step from then on.
  std::chrono::microseconds longest_;
};

}  // namespace replicator::detail::transport
