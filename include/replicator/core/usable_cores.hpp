// SPDX-License-Identifier: Apache-2.0
// How many cores there are.
#pragma once

#include <algorithm>
#include <sched.h>
#include <thread>

namespace replicator {

// The cores that the calling thread may run on; threads that it starts inherit them. Launchers and containers often leave a process fewer than
// the machine has. At least 1.
inline int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  // More cores than fit into the set: 1,024.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace replicator
