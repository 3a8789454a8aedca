// SPDX-License-Identifier: Apache-2.0
// How old the values are that readers compute from, and who may update them next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace replicator::detail {

// A reader reads values, computes from them, and makes one update of them. In between others make theirs: their number is how stale its
// update is. Under a bound an update must wait where somebody who has read would become too late by it. Readers at work are
// then always able to update one after the other, whoever read first in front, without one of them passing the bound: the one in front never
// waits for another's update, so nobody waits in a circle. That needs a bound of at least the readers at work at once, less one.
// Not synchronised.
class Staleness {
 public:
  // No bound: nobody waits.
  Staleness(int readers, std::optional<std::int64_t> bound) : bound_{bound}, seen_(static_cast<std::size_t>(readers)) {}

  // The reader has all updates up to now.
  void read(int reader) { seen_[static_cast<std::size_t>(reader)] = updates_; }
  // Since its last update.
  bool has_read(int reader) const { return seen_[static_cast<std::size_t>(reader)].has_value(); }
  // A reader that has read.
  bool may_update(int reader) const { return !held_by(reader); }
  // Whom `reader` must wait for; none where it may update now.
  std::optional<int> held_by(int reader) const {
    if (!bound_) return std::nullopt;
    std::vector<std::pair<std::int64_t, int>> others;  // by what they have seen
    for (std::size_t r = 0; r < seen_.size(); ++r)
      if (seen_[r] && static_cast<int>(r) != reader) others.emplace_back(*seen_[r], static_cast<int>(r));
    std::sort(others.begin(), others.end());
    for (std::size_t i = 0; i < others.size(); ++i)
      if (updates_ + 1 + static_cast<std::int64_t>(i) - others[i].first > *bound_) return others[0].second;
    return std::nullopt;
  }
  // Returns how stale the update was. What it made has been seen by nobody yet.
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
  std::vector<std::optional<std::int64_t>> seen_;  // by reader: updates when it read; none where it is not at work
};

}  // namespace replicator::detail
