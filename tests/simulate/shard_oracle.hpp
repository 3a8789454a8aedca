// SPDX-License-Identifier: Apache-2.0
// ShardOracle: what nobody in an asynchronous job sees. It checks each read and each update of a shard.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel.hpp"

namespace simulate {

std::uint64_t mixed_bits(std::uint64_t a, std::uint64_t b);
// Another thread may run here.
void let_others_run();
void pass_time_of_a_step(int group);
int signal_of_this_process();

class ShardOracle {
 public:
  ShardOracle(Kernel& kernel, int shards, int groups, std::optional<std::int64_t> bound)
      : kernel_{kernel}, bound_{bound}, updates_(static_cast<std::size_t>(shards)), next_(static_cast<std::size_t>(shards), std::vector<std::int64_t>(static_cast<std::size_t>(groups))) {}

  // A group has read two variables of a shard: all of an update is in both, or in none.
  void reads(int shard, int group, const std::int64_t* one, const std::int64_t* other) {
    if (one[0] != other[0] || one[1] != other[1]) kernel_.violation("group " + std::to_string(group) + " reads a part of an update of shard " + std::to_string(shard));
  }
  // `seen`: the number of updates in the values that the gradient was computed from. `before`: as the shard counts them.
  void updates(int shard, std::int64_t group, std::int64_t step, std::int64_t seen, std::int64_t before) {
    auto& count = updates_[static_cast<std::size_t>(shard)];
    auto& next = next_[static_cast<std::size_t>(shard)][static_cast<std::size_t>(group)];
    const auto what = "the update of shard " + std::to_string(shard) + " by step " + std::to_string(step) + " of group " + std::to_string(group);
    if (step < next) kernel_.violation(what + " is applied twice");
    if (step > next) kernel_.violation(what + " is applied, but step " + std::to_string(next) + " is not");
    if (before != count) kernel_.violation(what + " is counted as number " + std::to_string(before) + ", and is number " + std::to_string(count));
    if (bound_ && count - seen > *bound_) kernel_.violation(what + " is " + std::to_string(count - seen) + " updates old, and the bound is " + std::to_string(*bound_));
    next = step + 1;
    ++count;
  }
  std::int64_t updates(int shard) const { return updates_[static_cast<std::size_t>(shard)]; }
  std::int64_t steps(int shard, int group) const { return next_[static_cast<std::size_t>(shard)][static_cast<std::size_t>(group)]; }

 private:
  Kernel& kernel_;
  std::optional<std::int64_t> bound_;
  std::vector<std::int64_t> updates_;            // by shard
  std::vector<std::vector<std::int64_t>> next_;  // by shard and group: the step that it applies next
};

}  // namespace simulate
