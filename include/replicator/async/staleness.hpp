// SPDX-License-Identifier: Apache-2.0
// Staleness: the staleness bound. It counts the updates that a reader has missed, and decides which reader may update
// next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace replicator::detail {

// A reader reads values, computes from them, and makes one update. The staleness of its update is the number of updates
// that others made in between. Under a bound, an update waits if it would push the staleness of another reader beyond
// the bound.
//
// There is no deadlock: all readers at work can update one after the other within the bound, in the order in which they
// read. So the reader that read first never waits. This needs a bound of at least the number of simultaneous readers,
// minus one. Not thread-safe.
class Staleness {
 public:
  // Without a bound no reader waits.
  Staleness(int readers, std::optional<std::int64_t> bound) : bound_{bound}, seen_(static_cast<std::size_t>(readers)) {}

  // The reader has read the values that include all updates so far.
  void read(int reader) { seen_[static_cast<std::size_t>(reader)] = updates_; }
  // True if the reader has read since its last update.
  bool has_read(int reader) const { return seen_[static_cast<std::size_t>(reader)].has_value(); }
  // For a reader that has read.
  bool may_update(int reader) const { return !held_by(reader); }
  // The reader for which `reader` must wait; none if it may update now.
  std::optional<int> held_by(int reader) const {
    if (!bound_) return std::nullopt;
    std::vector<std::pair<std::int64_t, int>> others;  // (updates when it read, reader)
    for (std::size_t r = 0; r < seen_.size(); ++r)
      if (seen_[r] && static_cast<int>(r) != reader) others.emplace_back(*seen_[r], static_cast<int>(r));
    std::sort(others.begin(), others.end());
    for (std::size_t i = 0; i < others.size(); ++i)
      if (updates_ + 1 + static_cast<std::int64_t>(i) - others[i].first > *bound_) return others[0].second;
    return std::nullopt;
  }
  // Counts the update, and returns its staleness.
  std::int64_t update(int reader) {
    auto& seen = seen_[static_cast<std::size_t>(reader)];
    const auto stale = updates_ - *seen;
    seen.reset();
    ++updates_;
    total_ += stale;
    largest_ = std::max(largest_, stale);
    return stale;
  }

  std::int64_t updates() const { return updates_; }
  std::int64_t largest() const { return largest_; }
  double mean() const { return updates_ > 0 ? static_cast<double>(total_) / static_cast<double>(updates_) : 0; }
  std::optional<std::int64_t> bound() const { return bound_; }

 private:
  std::optional<std::int64_t> bound_;
  std::int64_t updates_ = 0, total_ = 0, largest_ = 0;
  std::vector<std::optional<std::int64_t>> seen_;  // by reader: the number of updates when it read; none if it is not at work
};

}  // namespace replicator::detail
