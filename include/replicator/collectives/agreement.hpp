// SPDX-License-Identifier: Apache-2.0
// All replicas must ask for the same collectives, in the same order, with the same shapes and attributes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <replicator/graph/graph.hpp>

namespace replicator {

// The placeholders of a graph by ordinal: where each one's node is.
inline std::vector<std::uint32_t> placeholders_of(const Graph& graph) {
  std::vector<std::uint32_t> nodes;
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
    if (const auto* placeholder = graph.node(i).get<Placeholder>()) {
      if (nodes.size() <= placeholder->ordinal) nodes.resize(placeholder->ordinal + 1);
      nodes[placeholder->ordinal] = i;
    }
  return nodes;
}

// all_reduce "fc.weight/gradient" at train.cpp:31
inline std::string describe_placeholder(const Node& node) {
  std::string text{node.kind()};
  if (!node.label.empty()) text += " \"" + node.label + "\"";
  return text + " at " + node.where.text();
}

namespace detail {

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
  if (x.label != y.label) report("the label \"" + x.label + "\"", "\"" + y.label + "\"", "replicas must ask for the same collectives in the same order");
}

}  // namespace detail

// Throws BuildError that names the first difference, both replicas and both source lines.
inline void check_agreement(std::span<const Graph> graphs) {
  if (graphs.empty()) return;
  const auto first = placeholders_of(graphs[0]);
  for (std::size_t g = 1; g < graphs.size(); ++g) {
    const auto other = placeholders_of(graphs[g]);
    for (std::size_t k = 0; k < first.size() && k < other.size(); ++k)
      detail::require_equal(graphs[g], graphs[g].node(other[k]), graphs[0], graphs[0].node(first[k]));
    if (first.size() == other.size()) continue;
    const bool more = other.size() > first.size();
    const auto& longer = more ? graphs[g] : graphs[0];
    const auto& shorter = more ? graphs[0] : graphs[g];
    const auto& extra = longer.node((more ? other : first)[more ? first.size() : other.size()]);
    throw BuildError{"replica " + std::to_string(longer.replica()) + ": " + describe_placeholder(extra) + " has no counterpart in replica " +
                     std::to_string(shorter.replica()) + ", which asks for " + std::to_string(more ? first.size() : other.size()) +
                     " collectives instead of " + std::to_string(more ? other.size() : first.size()) +
                     ": replicas must ask for the same collectives in the same order"};
  }
}

}  // namespace replicator
