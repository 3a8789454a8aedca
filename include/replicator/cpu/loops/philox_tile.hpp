// SPDX-License-Identifier: Apache-2.0
// Philox random bits for 16 blocks at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <replicator/core/philox.hpp>

namespace replicator::detail::cpu::detail {

inline constexpr std::size_t philox_lanes = 16;
using PhiloxWords = std::array<std::array<std::uint32_t, philox_lanes>, 4>;

// Runs the generator of core/philox.hpp on 16 counters at once. Their first words count up.
[[gnu::always_inline]] inline void philox_tile(PhiloxCounter counter, PhiloxKey key, PhiloxWords& words) {
  auto& [c0, c1, c2, c3] = words;
  for (std::size_t j = 0; j < philox_lanes; ++j) {
    c0[j] = counter[0] + static_cast<std::uint32_t>(j);
    c1[j] = counter[1];
    c2[j] = counter[2];
    c3[j] = counter[3];
  }
  for (int round = 0; round < 10; ++round) {
    for (std::size_t j = 0; j < philox_lanes; ++j) {
      const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0[j];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c2[j];
      c0[j] = static_cast<std::uint32_t>(b >> 32) ^ c1[j] ^ key[0];
      c1[j] = static_cast<std::uint32_t>(b);
      c2[j] = static_cast<std::uint32_t>(a >> 32) ^ c3[j] ^ key[1];
      c3[j] = static_cast<std::uint32_t>(a);
    }
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

}  // namespace replicator::detail::cpu::detail
