// SPDX-License-Identifier: Apache-2.0
// The cores that a process may use.
#pragma once

#include <sched.h>

#include <cstring>

namespace replicator::detail {

// The cores that the calling thread may run on. Threads that it starts inherit them. Launchers and containers often leave a
// process fewer cores than the machine has. The share of time that a container is given (cgroups) is not looked up.
inline cpu_set_t usable_core_set() {
  cpu_set_t set;
  // The call fails where the machine has more than the 1,024 cores that fit into a set. Then all cores of the set count.
  if (::sched_getaffinity(0, sizeof set, &set) != 0) std::memset(&set, 0xFF, sizeof set);
  return set;
}

// Number of usable cores, at least 1.
inline int usable_cores() {
  const cpu_set_t set = usable_core_set();
  return CPU_COUNT(&set);
}

}  // namespace replicator::detail
