// SPDX-License-Identifier: Apache-2.0
// The random number generator Philox4x32-10: random numbers as a pure function of a counter and a key.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace replicator {

using PhiloxCounter = std::array<std::uint32_t, 4>;  // the number of a block of random bits
using PhiloxKey = std::array<std::uint32_t, 2>;      // selects the sequence

// Ten rounds. Returns 128 random bits.
constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// A stream of 32-bit random words for the host: initial values, permutations, augmentation. Word i depends only on
// (seed, stream, substream) and i.
class PhiloxStream {
 public:
  constexpr PhiloxStream(std::uint64_t seed, std::uint64_t stream, std::uint32_t substream = 0)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        base_{0, substream, static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)} {}

  constexpr std::uint32_t next() {
    if (used_ == 4) {
      block_ = philox(base_, key_);
      ++base_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  // Uniform in [0, 1), 24 bits.
  constexpr float uniform() { return static_cast<float>(next() >> 8) * 0x1p-24f; }
  // Uniform integer in [0, n), n > 0 (multiply-shift; bias below 2^-32 n).
  constexpr std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{next()} * n) >> 32);
  }

 private:
  PhiloxKey key_;
  PhiloxCounter base_;
  PhiloxCounter block_{};
  unsigned used_ = 4;
};

}  // namespace replicator
