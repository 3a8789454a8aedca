// SPDX-License-Identifier: Apache-2.0
// How many cores there are.
#pragma once

#include <sched.h>

#include <cstring>

namespace replicator::detail {

// The cores that the calling thread may run on; threads that it starts inherit them. Launchers and containers often leave a process fewer than
// the machine has; shares of time that a container is given (cgroups) are not among what is asked here.
inline cpu_set_t usable_core_set() {
  cpu_set_t set;
  // Refused where the machine has more cores than fit into a set, 1,024: then all of those.
  if (::sched_getaffinity(0, sizeof set, &set) != 0) std::memset(&set, 0xFF, sizeof set);
  return set;
}

// How many these are, at least 1.
inline int usable_cores() {
  const cpu_set_t set = usable_core_set();
  return CPU_COUNT(&set);
}

}  // namespace replicator::detail
