// SPDX-License-Identifier: Apache-2.0
// CollectiveUses: where the result of a collective goes: into mirrored variables, other collectives, or a result of the
// step. The asynchronous regime supports a collective only if its result is used to update mirrored variables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <replicator/graph/graph.hpp>
#include <replicator/resolve/placeholders.hpp>

namespace replicator::detail {

inline bool assigns_mirrored(const Graph& graph, const Node& node) {
  const auto* assign = node.get<Assign>();
  return assign && graph.variables()[assign->variable].kind == VariableKind::mirrored;
}

// The uses of one collective's result, up to the next collective. A variable that is read after its assignment counts
// as the replica's own copy, so the search ends there.
struct CollectiveUses {
  std::set<std::uint32_t> updates;         // mirrored variables whose assigned value depends on it
  std::vector<std::uint32_t> collectives;  // nodes of collectives whose input depends on it
  std::optional<std::size_t> result;       // the first result of the step that depends on it
};

inline bool reads_mirrored_again(const Graph& graph, const Node& node) {
  const auto* compute = node.get<Compute>();
  const auto* again = compute ? compute->operation.get<AssignedValue>() : nullptr;
  return again && graph.variables()[again->variable].kind == VariableKind::mirrored;
}

inline CollectiveUses uses_of(const Graph& graph, std::uint32_t collective) {
  CollectiveUses uses;
  std::vector<bool> reached(graph.nodes().size());
  reached[collective] = true;
  for (auto i = collective + 1; i < reached.size(); ++i) {
    const auto& node = graph.node(i);
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](Value input) { return reached[input.node]; })) continue;
    if (assigns_mirrored(graph, node)) uses.updates.insert(node.get<Assign>()->variable);
    else if (node.get<Placeholder>()) uses.collectives.push_back(i);
    else reached[i] = !reads_mirrored_again(graph, node);
  }
  for (std::size_t k = graph.results().size(); k-- > 0;)
    if (reached[graph.results()[k].node]) uses.result = k;
  return uses;
}

// The reason why the asynchronous regime cannot do the collective, and how to mend it. Empty if it can.
inline std::string fault_of_kind(const Placeholder& placeholder) {
  const std::string mend = ": leave it out, or run with --regime sync";
  if (placeholder.kind != CollectiveKind::all_reduce) return "it needs the values of all replicas at the same step" + mend;
  if (!placeholder.groups.everybody()) return "it is over groups of replicas, but an update takes an all_reduce over all of them" + mend;
  return {};
}
inline std::string fault_of_uses(const Graph& graph, std::uint32_t collective, const std::map<std::uint32_t, CollectiveUses>& all) {
  const auto& uses = all.at(collective);
  if (uses.result)
    return "result " + std::to_string(*uses.result) + " of the step is computed from it: return what the replica has computed alone, or run with --regime sync";
  // Two rounds of one reduction may depend on each other if both results go into the same update, as in nn::low_rank.
  const auto same_update = [&](std::uint32_t other) {
    const auto& updates = all.at(other).updates;
    return std::any_of(updates.begin(), updates.end(), [&](std::uint32_t variable) { return uses.updates.contains(variable); });
  };
  for (const auto other : uses.collectives)
    if (!same_update(other))
      return "the replica needs its result before " + describe_placeholder(graph.node(other)) + ": leave it out, or run with --regime sync";
  if (uses.updates.empty()) return "no mirrored variable is assigned a value computed from it: leave it out, or run with --regime sync";
  return {};
}

// Throws BuildError unless every collective is an all_reduce over all replicas that is used only to update mirrored
// variables. A replica-local variable may depend on it as well, such as the part of a gradient that was not sent.
inline void require_updates_only(const Graph& graph) {
  const auto require = [&](std::uint32_t collective, const std::string& fault) {
    if (fault.empty()) return;
    throw BuildError{describe_placeholder(graph.node(collective)) + " cannot be resolved with --regime async: replicas are at different steps there, and " +
                     fault};
  };
  const auto collectives = placeholders_of(graph);
  std::map<std::uint32_t, CollectiveUses> uses;
  for (const auto collective : collectives) {
    require(collective, fault_of_kind(*graph.node(collective).get<Placeholder>()));
    uses.emplace(collective, uses_of(graph, collective));
  }
  for (const auto collective : collectives) require(collective, fault_of_uses(graph, collective, uses));
}
}  // namespace replicator::detail
