// SPDX-License-Identifier: Apache-2.0
// Measures how far the clock of process 0 is ahead of this process's clock, over the job's connections.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <thread>

#include <replicator/job/job.hpp>

namespace replicator::detail::transport {

// The true difference certainly lies within `offset` +- `uncertainty`. Both are in nanoseconds of
// std::chrono::steady_clock.
struct ClockOffset {
  std::int64_t offset = 0;  // add it to a time of this process to get process 0's time
  std::int64_t uncertainty = 0;
};

// Collective. In each round process 0 notes when it left the last exchange and when it enters this one. It cannot have left
// the last one before this process entered it. It cannot enter this one after this process leaves it. So the difference is
// bounded from both sides, whatever the delays are.
//
// The two sides wait in turn, so that each direction is measured alone. The precision is about the shortest round trip:
// 50 us between processes of a machine. Where zero is possible, the result is zero: processes of one machine share a clock.
inline ClockOffset measure_clock_offset(Job& job, int rounds = 16) {
  if (job.size() == 1) return {};
  const auto now = [] { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  const bool hub = job.rank() == 0;
  std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 2> mine{now(), 0};  // when this process left the last exchange, and enters this one
  std::int64_t entered_before = 0;
  for (int round = 0; round < rounds; ++round) {
    if ((round % 2 == 0) == hub) std::this_thread::sleep_for(std::chrono::microseconds{300});
    mine[1] = now();
    const auto all = job.exchange(std::as_bytes(std::span{mine}), "the comparison of clocks");
    const auto left = now();
    std::array<std::int64_t, 2> theirs{};
    std::memcpy(theirs.data(), all[0].data(), std::min(sizeof theirs, all[0].size()));
    if (round > 0) high = std::min(high, theirs[0] - entered_before);
    low = std::max(low, theirs[1] - left);
    entered_before = mine[1];
    mine[0] = left;
  }
  if (hub) return {};
  if (low <= 0 && high >= 0) return {0, std::max(-low, high)};
  return {low + (high - low) / 2, (high - low + 1) / 2};
}

}  // namespace replicator::detail::transport
