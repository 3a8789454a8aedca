// SPDX-License-Identifier: Apache-2.0
// A random permutation of n items without memory: each position is computed on demand.
#pragma once

#include <bit>
#include <cstdint>
#include <replicator/core/philox.hpp>

namespace replicator::data {

// A bijection of [0, size) for each (seed, epoch). A Feistel network permutes the smallest even number of bits that
// holds `size`. It is applied until the value falls inside, on average fewer than four times. `size` is at least 1.
// Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch)
      : size_{static_cast<std::uint64_t>(size)},
        half_bits_{static_cast<int>(std::bit_width(size_ - 1) + 1) / 2},
        key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        epoch_{static_cast<std::uint32_t>(epoch)} {}

  std::int64_t operator()(std::int64_t position) const {
    auto value = static_cast<std::uint64_t>(position);
    do value = encrypt(value);
    while (value >= size_);
    return static_cast<std::int64_t>(value);
  }

 private:
  std::uint64_t encrypt(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (std::uint32_t round = 0; round < 8; ++round) {
      const std::uint32_t noise = philox({static_cast<std::uint32_t>(right), round, epoch_, domain}, key_)[0];
      const std::uint64_t next = left ^ (noise & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  // Separates these random numbers from others with the same seed.
  static constexpr std::uint32_t domain = 0x73687566;

  std::uint64_t size_;
  int half_bits_;
  PhiloxKey key_;
  std::uint32_t epoch_;
};

}  // namespace replicator::data
