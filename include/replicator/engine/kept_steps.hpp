// SPDX-License-Identifier: Apache-2.0
// The compiled programs of a replicated step, by the shapes of all replicas' elements.
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

// At most `most`, each with its memory: the one used longest ago is dropped, to be compiled again where its shapes come again. Compiling is
// collective, so all processes must ask for the same keys in the same order; then they keep, and drop, the same.
class KeptSteps {
 public:
  using Key = std::vector<std::uint64_t>;  // by replica, of all processes: the number of its element's shapes
  static constexpr std::size_t most = 16;

  // Null where there is none. What is found is the latest.
  HostStep* find(const Key& key) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& one) { return one.first == key; });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return latest();
  }
  // For one more; true where one was dropped.
  bool make_room() {
    if (kept_.size() < most) return false;
    kept_.pop_back();
    return true;
  }
  HostStep& keep(Key key, std::unique_ptr<HostStep> step) { return *kept_.emplace_front(std::move(key), std::move(step)).second; }
  // Null before the first.
  HostStep* latest() const { return kept_.empty() ? nullptr : kept_.front().second.get(); }

 private:
  std::list<std::pair<Key, std::unique_ptr<HostStep>>> kept_;  // the latest first
};

}  // namespace replicator::detail
