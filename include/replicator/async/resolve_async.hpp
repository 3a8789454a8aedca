// SPDX-License-Identifier: Apache-2.0
// resolve_async: resolution in the asynchronous regime. It cuts a replica's step at the all_reduces whose results are
// assigned to mirrored variables. A replica runs the part before the cut at its own pace. The part after the cut is the
// update, with one graph for each shard of the variables. A shard runs it once for every gradient that arrives. Like
// resolve, it is one pure function.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/collective_uses.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/resolve/resolution.hpp>

namespace replicator::detail {

// A set of variables that are always updated together, and the graph of their update.
struct ShardGraph {
  // Assigns the variables. Each all_reduce is replaced by an Input::Source::arrival with the same ordinal.
  Graph update;
  std::vector<std::string> variables;
  std::int64_t bytes = 0;  // of all these variables
};

struct AsyncResolution {
  Resolution whole;  // as resolved in the synchronous regime
  // By replica: its step without updates. The results are those of the step, then those of the collectives by ordinal.
  std::vector<Graph> steps;
  std::size_t results = 0;         // number of results of the step function
  std::vector<ShardGraph> shards;  // empty if the step has no all_reduce; it then assigns no mirrored variable
};

inline void require_gradients(const Graph& graph, bool any) {
  if (any) return;
  for (const auto& node : graph.nodes())
    if (assigns_mirrored(graph, node))
      throw BuildError{"\"" + graph.variables()[node.get<Assign>()->variable].name + "\" is mirrored, and assigned at " + node.where.text() +
                       " by a step in which no all_reduce reaches a mirrored variable: with --regime async such a step has no updates by which its replicas "
                       "could be counted. Assign it in the step that trains, make it replica_local, or run with --regime sync"};
}

// In a group's step an all_reduce is over the group's replicas only. A sum is multiplied by the number of groups, as if
// every group had contributed the same. So a sum divided by the number of replicas is a mean in this regime too.
inline void copy_for_group(Rewriter& rewriter, std::uint32_t index, int groups) {
  const auto copy = rewriter.copy(index);
  const auto& node = rewriter.from().node(index);
  const auto* placeholder = node.get<Placeholder>();
  if (!placeholder || placeholder->reduction != Reduction::sum || groups == 1) return;
  rewriter.replace(index, {apply(ScalarOp::multiply, rewriter.to().tensor(copy), groups, node.where).value()});
}

// The part that a replica runs alone. Its last results are those of the collectives, by ordinal.
inline Graph without_updates(const Graph& traced, int groups) {
  Rewriter rewriter{traced};
  for (std::uint32_t i = 0; i < traced.nodes().size(); ++i)
    if (!assigns_mirrored(traced, traced.node(i))) copy_for_group(rewriter, i, groups);
  std::vector<Value> means;
  for (const auto node : placeholders_of(traced)) means.push_back(rewriter({node, 0}));
  Graph result = std::move(rewriter).finish();
  result.results().insert(result.results().end(), means.begin(), means.end());
  return result;
}

// The nodes on which the assignments depend, back to the collectives.
inline std::vector<bool> needed_by(const Graph& graph, const std::vector<std::uint32_t>& assignments) {
  std::vector<bool> needed(graph.nodes().size());
  for (const auto assignment : assignments) needed[assignment] = true;
  for (std::size_t i = needed.size(); i-- > 0;) {
    const auto& node = graph.node(static_cast<std::uint32_t>(i));
    if (!needed[i] || node.get<Placeholder>()) continue;
    for (const auto input : node.inputs) needed[input.node] = true;
  }
  return needed;
}

// True for a print, check or host_callback. It looks at the value in the replica's step, so the update leaves it out.
inline bool only_looks(const Node& node) {
  const auto* compute = node.get<Compute>();
  return compute && compute->operation.effect() && node.inputs.size() == 1 && node.outputs.size() == 1;
}

inline Graph update_graph(const Graph& traced, const std::vector<std::uint32_t>& assignments) {
  Rewriter rewriter{traced};
  const auto needed = needed_by(traced, assignments);
  for (std::uint32_t i = 0; i < traced.nodes().size(); ++i) {
    if (!needed[i]) continue;
    const auto& node = traced.node(i);
    if (const auto* placeholder = node.get<Placeholder>())
      rewriter.replace(i, rewriter.to().add({Input{Input::Source::arrival, placeholder->ordinal}, {}, node.outputs, node.where, node.label, node.device}));
    else if (only_looks(node)) rewriter.replace(i, {rewriter(node.inputs[0])});
    else rewriter.copy(i);
  }
  return std::move(rewriter.to());
}

// The assignments of mirrored variables, in sets. Two variables are in one set if the update of one reads the other.
class AssignmentSets {
 public:
  explicit AssignmentSets(const Graph& graph) : graph_{graph}, root_(graph.variables().size()) {
    std::iota(root_.begin(), root_.end(), std::uint32_t{0});
    for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
      if (assigns_mirrored(graph, graph.node(i))) assigned_[variable_of(i)].push_back(i);
    for (const auto& [variable, assignments] : assigned_) join_with_read(variable, assignments);
  }

  // Returns the largest set first. The assignments of a set are in program order.
  std::vector<std::vector<std::uint32_t>> sets() const {
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_root;
    for (const auto& [variable, assignments] : assigned_) {
      auto& set = by_root[root(variable)];
      set.insert(set.end(), assignments.begin(), assignments.end());
    }
    std::vector<std::vector<std::uint32_t>> result;
    for (auto& [first, set] : by_root) {
      std::sort(set.begin(), set.end());
      result.push_back(std::move(set));
    }
    std::stable_sort(result.begin(), result.end(), [this](const auto& a, const auto& b) { return bytes(a) > bytes(b); });
    return result;
  }
  std::set<std::string> names(const std::vector<std::uint32_t>& assignments) const {
    std::set<std::string> result;
    for (const auto i : assignments) result.insert(graph_.variables()[variable_of(i)].name);
    return result;
  }
  std::int64_t bytes(const std::vector<std::uint32_t>& assignments) const {
    std::set<std::uint32_t> variables;
    for (const auto i : assignments) variables.insert(variable_of(i));
    std::int64_t sum = 0;
    for (const auto variable : variables) sum += static_cast<std::int64_t>(graph_.variables()[variable].type.bytes());
    return sum;
  }

 private:
  std::uint32_t variable_of(std::uint32_t node) const { return graph_.node(node).get<Assign>()->variable; }
  std::uint32_t root(std::uint32_t variable) const {
    while (root_[variable] != variable) variable = root_[variable];
    return variable;
  }
  void join_with_read(std::uint32_t variable, const std::vector<std::uint32_t>& assignments) {
    const auto needed = needed_by(graph_, assignments);
    for (std::uint32_t i = 0; i < needed.size(); ++i) {
      const auto* read = needed[i] ? graph_.node(i).get<Read>() : nullptr;
      if (!read || !assigned_.contains(read->variable)) continue;
      const auto a = root(variable), b = root(read->variable);
      root_[std::max(a, b)] = std::min(a, b);
    }
  }

  const Graph& graph_;
  std::vector<std::uint32_t> root_;  // by variable: union-find over the sets
  std::map<std::uint32_t, std::vector<std::uint32_t>> assigned_;
};

// Makes at most `most` shards of about equal size: each set, the largest first, goes to the smallest shard.
inline std::vector<ShardGraph> make_shards(const Graph& traced, int most) {
  const AssignmentSets all{traced};
  std::vector<std::vector<std::uint32_t>> shards;
  for (const auto& set : all.sets()) {
    if (shards.size() < static_cast<std::size_t>(most)) {
      shards.push_back(set);
      continue;
    }
    auto& smallest = *std::min_element(shards.begin(), shards.end(), [&](const auto& a, const auto& b) { return all.bytes(a) < all.bytes(b); });
    smallest.insert(smallest.end(), set.begin(), set.end());
  }
  std::vector<ShardGraph> result;
  for (auto& shard : shards) {
    std::sort(shard.begin(), shard.end());
    const auto names = all.names(shard);
    result.push_back({update_graph(traced, shard), {names.begin(), names.end()}, all.bytes(shard)});
  }
  return result;
}

// `traced`: the graphs of all replicas. `shards`: the most shards to make. `groups`: the number of groups of
// synchronous replicas in the job. Throws BuildError as resolve does. Also throws one, with the source line, for every
// collective whose result has another use than updates of mirrored variables. Also for a step that assigns a mirrored
// variable, but has no all_reduce that updates one.
inline AsyncResolution resolve_async(std::span<const Graph> traced, int shards, int groups = 1, const ResolveOptions& options = {}) {
  AsyncResolution result;
  if (traced.empty()) return result;
  result.whole = resolve(traced, options);
  result.results = traced[0].results().size();
  const bool updates = !result.whole.collectives.empty();
  std::size_t checked = 0;  // classes: equal graphs are checked once
  for (std::size_t r = 0; r < traced.size(); ++r) {
    if (result.whole.class_of[r] == checked) {
      detail::require_updates_only(traced[r]);
      detail::require_gradients(traced[r], updates);
      ++checked;
    }
    result.steps.push_back(detail::without_updates(traced[r], groups));
  }
  if (updates) result.shards = detail::make_shards(traced[0], shards);
  return result;
}

}  // namespace replicator::detail
