// SPDX-License-Identifier: Apache-2.0
// Groups the updates of variables at the end of a step into launches. An optimizer computes one expression for each
// variable. Kernels of one family that do not depend on each other become one launch, if the kind of device can merge
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <replicator/runtime/lowering.hpp>

namespace replicator::detail {

// A node of class c's graph, with its kernel.
struct Update {
  int c = 0;
  const LoweredNode* node = nullptr;
};

// For each update, the length of the longest chain of other updates that depend on it. `updates` are in the order of
// their graphs.
inline std::vector<std::size_t> heights_of(std::span<const Update> updates) {
  std::vector<std::size_t> heights(updates.size());
  std::map<std::pair<int, std::uint32_t>, std::size_t> makers;  // by class and value
  for (std::size_t i = 0; i < updates.size(); ++i)
    for (const auto output : updates[i].node->outputs) makers[{updates[i].c, output}] = i;
  for (std::size_t i = updates.size(); i-- > 0;)
    for (const auto input : updates[i].node->inputs)
      if (const auto maker = makers.find({updates[i].c, input}); maker != makers.end())
        heights[maker->second] = std::max(heights[maker->second], heights[i] + 1);
  return heights;
}

// Each update runs as late as possible, so the last update of each variable is in one launch with those of the other
// variables. If nothing can be merged, the order stays the same.
inline std::vector<std::vector<Update>> launches_of(std::span<const Update> updates) {
  std::vector<std::vector<Update>> launches;
  const auto mergeable = [](const Update& update) { return !update.node->relayout && update.node->executable->family; };
  if (std::none_of(updates.begin(), updates.end(), mergeable)) {
    for (const auto& update : updates) launches.push_back({update});
    return launches;
  }
  const auto heights = heights_of(updates);
  std::map<std::size_t, std::vector<Update>, std::greater<>> levels;
  for (std::size_t i = 0; i < updates.size(); ++i) levels[heights[i]].push_back(updates[i]);
  for (const auto& [height, level] : levels) {
    std::map<Digest, std::size_t> launch_of;
    for (const auto& update : level) {
      const auto launch = mergeable(update) ? launch_of.try_emplace(*update.node->executable->family, launches.size()).first->second : launches.size();
      if (launch == launches.size()) launches.emplace_back();
      launches[launch].push_back(update);
    }
  }
  return launches;
}

}  // namespace replicator::detail
