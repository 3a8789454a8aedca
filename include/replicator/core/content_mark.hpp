// SPDX-License-Identifier: Apache-2.0
// A 64-bit mark of bytes in memory, to compare large values fast. Two contents that differ in one 8-byte word always have
// different marks; other pairs of different contents do so with a probability of about 1 - 2^-60. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace replicator::detail {

// The sum of all words, each times its own odd number, modulo 2^64. It takes one multiplication for 8 bytes, and none
// waits for the one before.
inline std::uint64_t content_mark(std::span<const std::byte> data) {
  constexpr std::uint64_t stride = 0x9E3779B97F4A7C14u;  // even, so that all factors are odd
  std::uint64_t factor = 0xBF58476D1CE4E5B9u, sum = data.size();
  std::size_t i = 0;
  for (; i + 8 <= data.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, data.data() + i, 8);
    sum += word * factor;
    factor += stride;
  }
  if (i < data.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data() + i, data.size() - i);
    sum += word * factor;
  }
  return sum;
}

}  // namespace replicator::detail
