// SPDX-License-Identifier: Apache-2.0
// Damaged copies of a file, to try on its reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/core/philox.hpp>

namespace replicator::test {

// The bytes cut to `round` of them; from round size() on, whole, with three random bytes changed.
inline std::vector<std::byte> damaged(std::vector<std::byte> bytes, std::uint64_t round) {
  if (round < bytes.size()) return bytes.resize(round), bytes;
  PhiloxStream random{4, round};
  for (int i = 0; i < 3; ++i) bytes[random.below(static_cast<std::uint32_t>(bytes.size()))] = static_cast<std::byte>(random.next());
  return bytes;
}

}  // namespace replicator::test
