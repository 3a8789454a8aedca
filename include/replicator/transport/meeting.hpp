// SPDX-License-Identifier: Apache-2.0
// How the processes of a job meet: process 0 listens, the others connect and say who they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <replicator/transport/job_options.hpp>
#include <replicator/transport/link.hpp>
#include <replicator/transport/rendezvous.hpp>

namespace replicator::transport::detail {

inline std::string describe_process(int rank, const ProcessInfo& info) {
  return "process " + std::to_string(rank) + " (pid " + std::to_string(info.pid) + " on " + info.host + ")";
}

}  // namespace replicator::transport::detail
