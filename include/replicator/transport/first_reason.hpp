// SPDX-License-Identifier: Apache-2.0
// Lets the processes of a job agree on a reason against sharing the memory of their devices.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <replicator/job/job.hpp>

namespace replicator::detail::transport {

// Collective. Every process gives a reason against sharing, or an empty text. Returns the reason of the first process that has
// one, with that process.
inline std::string first_reason(Job& job, const std::string& mine) {
  const auto all = job.exchange(std::as_bytes(std::span{mine.data(), mine.size()}), "reasons against shared device memory");
  for (int process = 0; process < job.size(); ++process) {
    const auto& reason = all[static_cast<std::size_t>(process)];
    if (!reason.empty()) return std::string(reinterpret_cast<const char*>(reason.data()), reason.size()) + ", says " + job.describe(process);
  }
  return {};
}

}  // namespace replicator::detail::transport
