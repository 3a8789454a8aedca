// SPDX-License-Identifier: Apache-2.0
// Plans memory: places buffers of known lifetimes in one arena, so that buffers that never live together share bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace replicator::detail {

// The lifetime of a buffer: from instruction `first` to instruction `last`, both included.
struct Lifetime {
  std::size_t bytes = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

struct ArenaLayout {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};

// Places the buffers in order of time by best fit. Offsets are multiples of 64 bytes.
inline ArenaLayout place_in_arena(std::span<const Lifetime> lifetimes) {
  ArenaLayout layout;
  layout.offsets.resize(lifetimes.size());
  std::vector<std::uint32_t> order(lifetimes.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return lifetimes[a].first < lifetimes[b].first; });
  std::map<std::size_t, std::size_t> free;               // offset -> bytes
  std::multimap<std::uint32_t, std::uint32_t> expiring;  // last -> buffer
  const auto rounded = [&](std::uint32_t i) { return (lifetimes[i].bytes + 63) / 64 * 64; };
  const auto release = [&](std::size_t offset, std::size_t bytes) {
    auto next = free.lower_bound(offset);
    if (next != free.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free.erase(next);
    }
    if (next != free.begin())
      if (auto previous = std::prev(next); previous->first + previous->second == offset) {
        previous->second += bytes;
        return;
      }
    free.emplace(offset, bytes);
  };
  for (const auto i : order) {
    while (!expiring.empty() && expiring.begin()->first < lifetimes[i].first) {
      const auto expired = expiring.begin()->second;
      release(layout.offsets[expired], rounded(expired));
      expiring.erase(expiring.begin());
    }
    const auto bytes = rounded(i);
    if (bytes == 0) continue;
    auto best = free.end();
    for (auto hole = free.begin(); hole != free.end(); ++hole)
      if (hole->second >= bytes && (best == free.end() || hole->second < best->second)) best = hole;
    if (best == free.end()) {
      // Grow the block, starting with a hole at its end if there is one.
      std::size_t offset = layout.bytes;
      if (!free.empty())
        if (auto last = std::prev(free.end()); last->first + last->second == layout.bytes) {
          offset = last->first;
          free.erase(last);
        }
      layout.offsets[i] = offset;
      layout.bytes = offset + bytes;
    } else {
      layout.offsets[i] = best->first;
      const auto rest = best->second - bytes;
      const auto after = best->first + bytes;
      free.erase(best);
      if (rest) free.emplace(after, rest);
    }
    expiring.emplace(lifetimes[i].last, i);
  }
  return layout;
}

}  // namespace replicator::detail
