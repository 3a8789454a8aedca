// SPDX-License-Identifier: Apache-2.0
// A simulation: what one seed does, and the counts that the runs of many seeds add up to.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "kernel.hpp"

namespace simulate {

// Counts by name, in memory that the batches of seeds share with the program that started them.
class Counts {
 public:
  void add(const char* name, std::uint64_t more = 1) {
    for (auto& count : counts_) {
      if (count.name[0] == '\0') std::strncpy(count.name, name, sizeof count.name - 1);
      if (std::strcmp(count.name, name) != 0) continue;
      count.value += more;
      return;
    }
  }
  template <class Each>
  void each(Each function) const {
    for (const auto& count : counts_)
      if (count.name[0] != '\0') function(count.name, count.value);
  }

 private:
  struct Count {
    char name[56];
    std::uint64_t value;
  };
  Count counts_[96];
};

// Runs one seed. Returns the broken rule; empty where all rules hold.
using Simulation = std::string (*)(std::uint64_t seed, bool traced, Counts& counts);

std::string simulate_job(std::uint64_t seed, bool traced, Counts& counts);
std::string simulate_checkpoints(std::uint64_t seed, bool traced, Counts& counts);
std::string simulate_shards(std::uint64_t seed, bool traced, Counts& counts);

// A good mixture of the bits of all numbers, for digests.
inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  Random random{a ^ (b * 0xd6e8feb86659fd93ull)};
  return random.next();
}

}  // namespace simulate
