// SPDX-License-Identifier: Apache-2.0
// DeviceShare: the part of a lowered graph that one device of a replica runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/lowering.hpp>

namespace replicator::detail {

inline bool is_placeholder(const Graph& graph, const LoweredNode& node) { return !node.executable && graph.node(node.node).get<Placeholder>(); }

class DeviceShare {
 public:
  DeviceShare(const Graph& graph, const LoweredGraph& lowered, int device) {
    count_uses(lowered);
    find_updates(graph, lowered);
    find_own(lowered, device);
  }

  // True for the nodes placed on the device and for the leaves that it uses.
  bool runs(std::uint32_t node) const { return runs_[node]; }
  // True for a uniform node that only updates mirrored variables, and so can run when nothing can fail any more. No
  // replica, collective, result or other device needs its output, and no value makes it refuse or throw (Executable::throws).
  bool only_updates(std::uint32_t node) const { return only_updates_[node]; }
  // The number of nodes, of any device, and results that read a value.
  std::uint32_t uses(std::uint32_t value) const { return uses_[value]; }

 private:
  void count_uses(const LoweredGraph& lowered) {
    uses_.assign(lowered.values.size(), 0);
    for (const auto& node : lowered.nodes)
      for (const auto input : node.inputs) ++uses_[input];
    for (const auto result : lowered.results) ++uses_[result];
  }

  void find_own(const LoweredGraph& lowered, int device) {
    std::vector<bool> used(lowered.values.size());
    for (const auto result : lowered.results) used[result] = device == 0;
    runs_.assign(lowered.nodes.size(), false);
    for (std::size_t i = lowered.nodes.size(); i-- > 0;) {
      const auto& node = lowered.nodes[i];
      runs_[i] = node.device == device || (node.device == everywhere && makes_any(node, [&](auto output) { return used[output]; }));
      for (const auto input : node.inputs) used[input] = used[input] || runs_[i];
    }
  }

  void find_updates(const Graph& graph, const LoweredGraph& lowered) {
    std::vector<bool> needed(lowered.values.size());
    for (const auto result : lowered.results) needed[result] = true;
    only_updates_.assign(lowered.nodes.size(), false);
    for (std::size_t i = lowered.nodes.size(); i-- > 0;) {
      const auto& node = lowered.nodes[i];
      if (!node.executable && node.uniform && graph.node(node.node).get<Assign>()) continue;
      const bool anchored = !node.uniform || is_placeholder(graph, node) || has_effect(graph, node) || (node.executable && (node.executable->refuses || node.executable->throws)) ||
                            makes_any(node, [&](auto output) { return needed[output] || lowered.values[output].crosses; });
      only_updates_[i] = !anchored && node.executable;
      if (only_updates_[i]) continue;
      for (const auto input : node.inputs) needed[input] = true;
    }
  }

  template <class Predicate>
  static bool makes_any(const LoweredNode& node, Predicate predicate) {
    return std::any_of(node.outputs.begin(), node.outputs.end(), predicate);
  }
  static bool has_effect(const Graph& graph, const LoweredNode& node) {
    const auto* compute = graph.node(node.node).get<Compute>();
    return node.executable && !node.relayout && compute && compute->operation.effect();
  }

  std::vector<bool> runs_, only_updates_;  // by lowered node
  std::vector<std::uint32_t> uses_;        // by value
};

}  // namespace replicator::detail
