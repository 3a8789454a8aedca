// SPDX-License-Identifier: Apache-2.0
// Checks the table that assigns ranks to processes.
#pragma once

#include <cstddef>
#include <replicator/core/error.hpp>
#include <replicator/job/job.hpp>
#include <string>
#include <vector>

namespace replicator::detail::transport::detail {

// Throws BuildError where a rank is assigned to a process that does not exist.
inline void check_process_table(const Job& job, const std::vector<int>& process_of_rank) {
  for (std::size_t r = 0; r < process_of_rank.size(); ++r)
    if (process_of_rank[r] < 0 || process_of_rank[r] >= job.size())
      throw BuildError{"rank " + std::to_string(r) + " is said to be in process " + std::to_string(process_of_rank[r]) +
                       ", but the job has " + std::to_string(job.size()) + " processes"};
}

}  // namespace replicator::detail::transport::detail
