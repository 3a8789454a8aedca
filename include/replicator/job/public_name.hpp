// SPDX-License-Identifier: Apache-2.0
// A name that every process of a job can make from the job's secret number, and that does not give the number away.
#pragma once

#include <cstdint>
#include <replicator/core/sha256.hpp>
#include <string>

namespace replicator::detail::transport::detail {

// Strangers see such names: those of abstract sockets in /proc/net/unix, and a job's name in the answer to a wrong one.
inline std::string public_name(std::uint64_t secret) {
  Sha256 hash;
  hash.update("replicator public name " + std::to_string(secret));
  return hash.text().substr(0, 16);
}

}  // namespace replicator::detail::transport::detail
