// SPDX-License-Identifier: Apache-2.0
// Prefetches the memory of the next tile while a tile is computed. Loops over tiles read memory in bursts with pauses between them.
// The processor alone does not fetch during the pauses, so an activation over large tensors takes a quarter longer without this.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace replicator::detail::cpu {

// Spans of memory that are needed soon. Each call of next() prefetches an equal share of them into the second-level cache. Many
// prefetches at once would fill the processor's queue of misses, and the computation would wait for them. So nothing is prefetched
// where a share would be more than `most_at_once` lines.
class PrefetchAhead {
 public:
  // Forgets the spans. The new ones are fetched by `calls` calls of next().
  void restart(std::size_t calls) {
    calls_ = calls;
    spans_ = lines_ = current_ = 0;
  }
  // Spans that find no place are not prefetched, and one that is there already is not prefetched twice.
  void add(const std::byte* from, std::size_t bytes) {
    const auto end = span_.begin() + static_cast<std::ptrdiff_t>(spans_);
    if (end == span_.end() || std::any_of(span_.begin(), end, [&](const Span& span) { return span.from == from; })) return;
    span_[spans_++] = {from, bytes / line};
    lines_ += bytes / line;
  }
  void next() {
    next([](const std::byte* at) { __builtin_prefetch(at, 0, 2); });
  }
  // The same with another function that fetches a line, for tests.
  template <class Fetch>
  void next(const Fetch& fetch) {
    if (calls_ == 0 || lines_ == 0) return;
    std::size_t share = (lines_ + calls_ - 1) / calls_;
    if (share > most_at_once) {
      lines_ = 0;
      return;
    }
    lines_ -= share;
    --calls_;
    while (share > 0 && current_ < spans_) {
      auto& [from, lines] = span_[current_];
      const std::size_t now = std::min(share, lines);
      for (std::size_t i = 0; i < now; ++i) fetch(from + i * line);
      from += now * line;
      lines -= now;
      share -= now;
      if (lines == 0) ++current_;
    }
  }

 private:
  static constexpr std::size_t line = 64;          // bytes of a cache line
  static constexpr std::size_t most_at_once = 64;  // lines: measured on Zen 4, where 128 make exp take 2.5 times as long
  struct Span {
    const std::byte* from;
    std::size_t lines;
  };
  std::array<Span, 8> span_;
  std::size_t spans_ = 0, lines_ = 0, current_ = 0, calls_ = 0;
};

}  // namespace replicator::detail::cpu
