// SPDX-License-Identifier: Apache-2.0
// TraceWindow: the steps that are timed or recorded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace replicator::detail {

// A higher limit would take gigabytes for a large network.
inline constexpr std::size_t most_timed_steps = 1000;

// The steps [first, end) of each replicated step.
struct TraceWindow {
  std::uint64_t first = 1;
  std::uint64_t end = 11;
  bool contains(std::uint64_t step) const { return step >= first && step < end; }
  std::size_t steps() const { return end > first ? static_cast<std::size_t>(end - first) : 0; }
  friend bool operator==(const TraceWindow&, const TraceWindow&) = default;
};

}  // namespace replicator::detail
