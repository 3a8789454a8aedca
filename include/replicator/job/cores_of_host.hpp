// SPDX-License-Identifier: Apache-2.0
// Counts the cores that the processes of a host have together.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstring>
#include <replicator/devices/usable_cores.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>
#include <span>
#include <vector>

namespace replicator::detail::transport {

// Collective. The number of cores on which any process of the caller's host may run; hosts[p] is the host of process p.
// Launchers may give each process its own cores, so their sets are united.
inline int cores_of_host(Job& job, std::span<const int> hosts) {
  const cpu_set_t mine = usable_core_set();
  cpu_set_t together;
  CPU_ZERO(&together);
  const auto all = job.exchange(std::as_bytes(std::span{&mine, 1}), "cores");
  for (std::size_t p = 0; p < all.size(); ++p) {
    cpu_set_t theirs;
    require_contribution(all[p].size() == sizeof theirs, static_cast<int>(p), all[p].size(), "the sets of cores");
    std::memcpy(&theirs, all[p].data(), sizeof theirs);
    if (hosts[p] == hosts[static_cast<std::size_t>(job.rank())]) CPU_OR(&together, &together, &theirs);
  }
  return CPU_COUNT(&together);
}

}  // namespace replicator::detail::transport
