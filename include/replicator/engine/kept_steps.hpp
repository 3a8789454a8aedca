// SPDX-License-Identifier: Apache-2.0
// KeptSteps: the cache of compiled programs of one replicated step. The key is the set of shapes of all replicas'
// elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/engine/host_step.hpp>

namespace replicator::detail {

// Keeps at most `most` entries, each with its memory, and drops the least recently used one. **Compiling is collective:
// all processes must ask for the same keys in the same order.** Then all keep and drop the same entries.
class KeptSteps {
 public:
  using Key = std::vector<std::uint64_t>;  // for each replica of all processes: the number of its element's shapes
  static constexpr std::size_t most = 16;

  // Null if there is none. The found entry becomes the latest.
  HostStep* find(const Key& key) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& one) { return one.first == key; });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return latest();
  }
  // Makes room for one more entry. Returns true if one was dropped.
  bool make_room() {
    if (kept_.size() < most) return false;
    kept_.pop_back();
    return true;
  }
  HostStep& keep(Key key, std::unique_ptr<HostStep> step) { return *kept_.emplace_front(std::move(key), std::move(step)).second; }
  // Null if there is none.
  HostStep* latest() const { return kept_.empty() ? nullptr : kept_.front().second.get(); }

 private:
  std::list<std::pair<Key, std::unique_ptr<HostStep>>> kept_;  // the latest first
};

}  // namespace replicator::detail
