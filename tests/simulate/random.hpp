// SPDX-License-Identifier: Apache-2.0
// Random: the only source of chance in a simulation. One seed gives one sequence on every machine.
#pragma once

#include <cstdint>

namespace simulate {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_{seed * 0x9e3779b97f4a7c15ull + 0x1234567ull} {}

  // SplitMix64 (Steele, Lea and Flood 2014).
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : next() % n; }
  // Both ends are included.
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low + 1))); }
  bool chance(double probability) { return static_cast<double>(next() >> 11) < probability * 9007199254740992.0; }

 private:
  std::uint64_t state_;
};

}  // namespace simulate
