// SPDX-License-Identifier: Apache-2.0
// Checks that all replicas of a step agree. They must have the same collectives in the same order, with the same shapes
// and attributes, the same variables, and results of the same types. Without this check, errors would depend on the
// placement.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <replicator/graph/graph.hpp>
#include <replicator/resolve/placeholders.hpp>

namespace replicator::detail {

// "replica 2: all_reduce "loss" at gan.cpp:41 has 128 floats; replica 0 has 256 at gan.cpp:38: ..."
[[noreturn]] inline void disagree(const Graph& a, const Node& x, const Graph& b, const Node& y, const std::string& has, const std::string& other,
                                  const std::string& mend) {
  throw BuildError{"replica " + std::to_string(a.replica()) + ": " + describe_placeholder(x) + " has " + has + "; replica " +
                   std::to_string(b.replica()) + " has " + other + " at " + y.where.text() + ": " + mend};
}

inline void require_equal(const Graph& a, const Node& x, const Graph& b, const Node& y) {
  const auto &p = *x.get<Placeholder>(), &q = *y.get<Placeholder>();
  const auto report = [&](const std::string& has, const std::string& other, const std::string& mend) { disagree(a, x, b, y, has, other, mend); };
  if (p.kind != q.kind)
    report("the kind " + std::string{name_of(p.kind)}, std::string{name_of(q.kind)}, "replicas must ask for the same collectives in the same order");
  const TensorType t = a.type(x.inputs[0]), u = b.type(y.inputs[0]);
  if (t != u) report(t.text(), u.text(), "replicas must contribute equal shapes and dtypes");
  if (p.reduction != q.reduction)
    report("the reduction " + std::string{name_of(p.reduction)}, std::string{name_of(q.reduction)}, "replicas must ask for the same reduction");
  if (p.root != q.root) report("the root " + std::to_string(p.root), "the root " + std::to_string(q.root), "replicas must name the same root");
  if (p.any_order != q.any_order)
    report(p.any_order ? "any_order" : "the fixed order", q.any_order ? "any_order" : "the fixed order", "replicas must ask for the same order");
  if (x.device != y.device)
    report("its place on logical device " + std::to_string(x.device), "logical device " + std::to_string(y.device),
           "replicas must place their collectives on the same logical devices");
  if (p.groups != q.groups)
    report("the groups " + p.groups.text(), "the groups " + q.groups.text(), "every replica must name the groups of all replicas, and the same ones");
  if (x.label != y.label)
    report("the label \"" + x.label + "\"", "\"" + y.label + "\"",
           "replicas must ask for the same collectives in the same order");
}

// With `stands_for`, the values of all replicas have equal weight. So in each group they must stand for equally many
// elements.
inline void require_equal_counts(const Graph& a, const Node& x, const Graph& b, const Node& y) {
  const auto &p = *x.get<Placeholder>(), &q = *y.get<Placeholder>();
  if (p.stands_for == q.stands_for) return;
  disagree(a, x, b, y, "moments of " + std::to_string(p.stands_for) + " element(s)", "those of " + std::to_string(q.stands_for),
           "every replica's moments have equal weight, so all need equally many elements: make their batches equal");
}
// The index of the first local replica in the same group as graphs[g].
inline std::size_t first_of_group(std::span<const Graph> graphs, std::size_t g, const Groups& groups) {
  if (groups.everybody()) return 0;
  const int group = groups.group_of(graphs[g].replica());
  std::size_t first = 0;
  while (groups.group_of(graphs[first].replica()) != group) ++first;
  return first;
}

// "made at train.cpp:31", or "an input" for a result that is an input of the step.
inline std::string origin(const Node& node) { return node.get<Input>() ? std::string{"an input"} : "made at " + node.where.text(); }

inline void require_equal_results(const Graph& a, const Graph& b) {
  const std::size_t count = std::min(a.results().size(), b.results().size());
  for (std::size_t k = 0; k < count; ++k) {
    const auto x = a.results()[k], y = b.results()[k];
    if (a.type(x) == b.type(y)) continue;
    throw BuildError{"replica " + std::to_string(a.replica()) + ": result " + std::to_string(k) + " of the step, " + origin(a.node(x)) + ", is " +
                     a.type(x).text() + "; replica " + std::to_string(b.replica()) + " has " + b.type(y).text() + ", " + origin(b.node(y)) +
                     ": replicas must return equal shapes and dtypes"};
  }
}

// Checks that b declares every variable of a.
inline void require_equal_variables(const Graph& a, const Graph& b) {
  for (const auto& x : a.variables()) {
    const std::string who = "replica " + std::to_string(a.replica()) + ": the variable \"" + x.name + "\" at " + x.where.text();
    const std::string other = "replica " + std::to_string(b.replica()), mend = ": every replica must declare the same variables";
    const auto* y = b.find_variable(x.name);
    if (!y) throw BuildError{who + " is not declared by " + other + mend};
    const auto text = [](const VariableDeclaration& v) { return std::string{name_of(v.kind)} + " " + v.type.text(); };
    if (text(x) != text(*y)) throw BuildError{who + " is " + text(x) + "; in " + other + " it is " + text(*y) + " at " + y->where.text() + mend};
    if (x.device != y->device)
      throw BuildError{who + " is on logical device " + std::to_string(x.device) + "; in " + other + " it is on logical device " +
                       std::to_string(y->device) + " at " + y->where.text() + ": every replica must declare a variable on the same logical device"};
    if (!(x.initializer == y->initializer))
      throw BuildError{who + " has another first value than in " + other + " at " + y->where.text() + mend};
    if (x.apart != y->apart)
      throw BuildError{who + " begins " + (x.apart ? "apart on each replica" : "equal on all replicas") + ", but not in " + other + " at " + y->where.text() +
                       ": every replica must give replica.local_variables() the same argument"};
  }
}

// The placeholders of a replica, with its graph.
struct PlaceholderList {
  const Graph& graph;
  std::vector<std::uint32_t> nodes = placeholders_of(graph);

  std::size_t size() const { return nodes.size(); }
  const Node& operator[](std::size_t k) const { return graph.node(nodes[k]); }
  // Whether placeholder k looks like the j-th of the other list. With `lines` it must come from the same line.
  bool alike(std::size_t k, const PlaceholderList& other, std::size_t j, bool lines) const {
    const Node &x = (*this)[k], &y = other[j];
    return x.kind() == y.kind() && x.label == y.label && graph.type(x.inputs[0]) == other.graph.type(y.inputs[0]) && (!lines || x.where.text() == y.where.text());
  }
};

// Where the longer list has placeholders that the shorter one lacks: the first of them. Empty if there is no such place.
inline std::optional<std::size_t> first_extra(const PlaceholderList& longer, const PlaceholderList& shorter, bool lines) {
  const std::size_t extra = longer.size() - shorter.size();
  std::size_t k = 0;
  while (k < shorter.size() && longer.alike(k, shorter, k, lines)) ++k;
  for (std::size_t j = k; j < shorter.size(); ++j)
    if (!longer.alike(j + extra, shorter, j, lines)) return std::nullopt;
  return k;
}

// Throws BuildError if one list has placeholders more, and the others are alike.
inline void refuse_extra(const PlaceholderList& longer, const PlaceholderList& shorter) {
  auto found = first_extra(longer, shorter, true);
  if (!found) found = first_extra(longer, shorter, false);
  if (!found) return;
  const Node& extra = longer[*found];
  throw BuildError{"replica " + std::to_string(longer.graph.replica()) + ": " + describe_placeholder(extra) + (extra.marks.order > 0 ? ", for a gradient," : "") +
                   " has no counterpart in replica " + std::to_string(shorter.graph.replica()) + ", which asks for " + std::to_string(shorter.size()) +
                   " collectives instead of " + std::to_string(longer.size()) + ": replicas must ask for the same collectives in the same order"};
}

// Throws BuildError at the first difference. The message names both replicas and both source lines.
inline void check_agreement(std::span<const Graph> graphs) {
  if (graphs.empty()) return;
  std::vector<PlaceholderList> lists{{graphs[0]}};
  for (std::size_t g = 1; g < graphs.size(); ++g) {
    lists.push_back({graphs[g]});
    const auto &first = lists[0], &other = lists[g];
    if (other.size() > first.size()) refuse_extra(other, first);
    if (first.size() > other.size()) refuse_extra(first, other);
    for (std::size_t k = 0; k < std::min(first.size(), other.size()); ++k) {
      detail::require_equal(graphs[g], other[k], graphs[0], first[k]);
      const auto peer = detail::first_of_group(graphs, g, other[k].get<Placeholder>()->groups);
      detail::require_equal_counts(graphs[g], other[k], graphs[peer], lists[peer][k]);
    }
    detail::require_equal_variables(graphs[g], graphs[0]);
    detail::require_equal_variables(graphs[0], graphs[g]);
    detail::require_equal_results(graphs[g], graphs[0]);
  }
}

}  // namespace replicator::detail
