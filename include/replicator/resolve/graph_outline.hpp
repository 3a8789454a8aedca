// SPDX-License-Identifier: Apache-2.0
// GraphOutline: a traced graph as texts and digests. Graphs of different replicas are compared by it, also across
// processes, to say where two step functions differ.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/number_text.hpp>
#include <replicator/graph/node_text.hpp>
#include <replicator/resolve/analyse_uniformity.hpp>

namespace replicator::detail {

struct OutlineNode {
  std::string kind;      // all_reduce "fc.weight/gradient"
  std::string details;   // the formula, the attributes or the value; may be empty
  std::string where;     // train.cpp:31; empty for an input
  std::string types;     // of the outputs: float32[4, 2]
  std::string assigned;  // the mirrored variable that it assigns; else empty
  std::string marks;     // 'u': an assigned value that is uniform; 'c': a collective
  std::string own;       // a digest of what it computes, without its inputs
  std::string whole;     // a digest of the whole computation, from the leaves and the last collectives on
  std::vector<std::uint32_t> inputs = {};

  std::string text() const { return kind + (details.empty() ? "" : " (" + details + ")") + (where.empty() ? "" : " at " + where); }
};

struct GraphOutline {
  static constexpr std::size_t texts_of_node = 9;

  int replica = 0;
  std::vector<OutlineNode> nodes;

  void add_to(std::vector<std::string>& texts) const {
    texts.push_back(std::to_string(replica));
    for (const auto& node : nodes) {
      std::string inputs(node.inputs.size() * sizeof(std::uint32_t), '\0');
      if (!inputs.empty()) std::memcpy(inputs.data(), node.inputs.data(), inputs.size());
      texts.insert(texts.end(), {node.kind, node.details, node.where, node.types, node.assigned, node.marks, node.own, node.whole, std::move(inputs)});
    }
  }
  // Nothing for texts that add_to() cannot have written.
  static std::optional<GraphOutline> from(std::span<const std::string> texts) {
    if (texts.size() % texts_of_node != 1) return {};
    GraphOutline result;
    result.replica = std::atoi(texts[0].c_str());
    for (auto rest = texts.subspan(1); !rest.empty(); rest = rest.subspan(texts_of_node)) {
      OutlineNode node{rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6], rest[7]};
      node.inputs.resize(rest[8].size() / sizeof(std::uint32_t));
      if (!node.inputs.empty()) std::memcpy(node.inputs.data(), rest[8].data(), node.inputs.size() * sizeof(std::uint32_t));
      for (const auto input : node.inputs)
        if (input >= result.nodes.size()) return {};
      result.nodes.push_back(std::move(node));
    }
    return result;
  }
};

// The first elements of an array: "0.1", "1, 2, 3, 4, ...".
inline std::string first_elements(const AnyArray& array) {
  constexpr std::int64_t shown = 4;
  std::string text;
  visit_dtype(array.dtype(), [&]<class T>() {
    const auto values = array.as<T>();
    for (std::int64_t i = 0; i < std::min(shown, array.shape().elements()); ++i)
      text += (i > 0 ? ", " : "") + number_text(static_cast<double>(values[static_cast<std::size_t>(i)]));
  });
  return text + (array.shape().elements() > shown ? ", ..." : "");
}

inline std::string details_of(const Node& node) {
  constexpr std::size_t length = 200;
  if (const auto* constant = node.get<Constant>()) return first_elements(*constant->array);
  if (const auto* placeholder = node.get<Placeholder>()) return std::string{name_of(placeholder->reduction)};
  const auto* compute = node.get<Compute>();
  if (!compute) return {};
  auto text = compute->operation.formula(length);
  if (text.empty()) text = compute->operation.attributes().substr(0, length);
  return text;
}

template <class = void>
GraphOutline outline_of(const Graph& graph) {
  const auto uniformity = analyse_uniformity(graph);
  GraphOutline outline{graph.replica(), {}};
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    const auto& node = graph.node(i);
    auto& entry = outline.nodes.emplace_back();
    entry.kind = std::string{node.kind()} + (node.label.empty() ? "" : " \"" + node.label + "\"");
    entry.details = details_of(node);
    if (*node.where.file) entry.where = node.where.text();
    for (const auto& type : node.outputs) entry.types += (entry.types.empty() ? "" : ", ") + type.text();
    if (const auto* assign = node.get<Assign>()) {
      const auto& variable = graph.variables()[assign->variable];
      if (variable.kind == VariableKind::mirrored) entry.assigned = variable.name;
      if (uniformity.uniform[node.inputs[0].node]) entry.marks = "u";
    }
    if (node.get<Placeholder>()) entry.marks = "c";
    Hasher own, whole;
    hash_node(own, graph, node);
    for (const auto input : node.inputs) {
      entry.inputs.push_back(input.node);
      own.word(input.output);
    }
    entry.own = own.result().text();
    for (const auto& digest : uniformity.digests[i]) whole.digest(digest);
    entry.whole = whole.result().text();
  }
  return outline;
}

// The names of two replicas in a message: "process 0" and "process 1".
struct OutlineNames {
  std::string a, b;
};

// "constant (0.1) at train.cpp:31 on process 0, constant (0.2) at train.cpp:31 on process 1"
inline std::string both_texts(const OutlineNode& a, const OutlineNode& b, const OutlineNames& names) {
  std::string x = a.text(), y = b.text();
  if (a.kind == b.kind && a.types != b.types) x += " gives " + a.types, y += " gives " + b.types;
  else if (x == y) return x + ", which has other attributes, values or inputs on " + names.b + " than on " + names.a;
  return x + " on " + names.a + ", " + y + " on " + names.b;
}

// The first difference in program order. Constants and attributes count only if nothing else differs, since they may
// depend on the replica.
inline std::string first_difference(const GraphOutline& a, const GraphOutline& b, const OutlineNames& names) {
  const auto count = std::min(a.nodes.size(), b.nodes.size());
  const auto same_structure = [](const OutlineNode& x, const OutlineNode& y) {
    return x.kind == y.kind && x.types == y.types && x.inputs == y.inputs && x.assigned == y.assigned;
  };
  for (std::size_t i = 0; i < count; ++i)
    if (!same_structure(a.nodes[i], b.nodes[i])) return both_texts(a.nodes[i], b.nodes[i], names);
  if (a.nodes.size() != b.nodes.size()) {
    const bool more = a.nodes.size() > b.nodes.size();
    return (more ? a : b).nodes[count].text() + " on " + (more ? names.a : names.b) + ", which " + (more ? names.b : names.a) + " has not";
  }
  for (std::size_t i = 0; i < count; ++i)
    if (a.nodes[i].own != b.nodes[i].own) return both_texts(a.nodes[i], b.nodes[i], names);
  return "what they return";
}

// The nodes that decide what node `last` computes. The result of a collective is the same on all replicas, so the search
// ends there.
inline std::vector<bool> computation_of(const GraphOutline& outline, std::size_t last) {
  std::vector<bool> part(outline.nodes.size());
  part[last] = true;
  for (std::size_t i = last + 1; i-- > 0;)
    if (part[i] && outline.nodes[i].marks != "c")
      for (const auto input : outline.nodes[i].inputs) part[input] = true;
  return part;
}

// The first node of the computation of a.nodes[i] that the computation of b.nodes[j] has not. These two differ.
inline const OutlineNode& first_without_match(const GraphOutline& a, std::size_t i, const GraphOutline& b, std::size_t j) {
  const auto mine = computation_of(a, i), theirs = computation_of(b, j);
  std::set<std::string> known;
  for (std::size_t k = 0; k < theirs.size(); ++k)
    if (theirs[k]) known.insert(b.nodes[k].whole);
  for (std::size_t k = 0; k < i; ++k)
    if (mine[k] && !known.contains(a.nodes[k].whole)) return a.nodes[k];
  return a.nodes[i];
}

// By mirrored variable: the nodes that assign it.
inline std::map<std::string, std::vector<std::size_t>> assignments_of(const GraphOutline& outline) {
  std::map<std::string, std::vector<std::size_t>> result;
  for (std::size_t i = 0; i < outline.nodes.size(); ++i)
    if (!outline.nodes[i].assigned.empty()) result[outline.nodes[i].assigned].push_back(i);
  return result;
}

// The sentence for a mirrored variable that one of the two graphs assigns more often than the other; empty if there is
// none. `at_a`, `at_b`: where the replicas are.
inline std::string assigned_by_one(const GraphOutline& a, const GraphOutline& b, const std::string& at_a, const std::string& at_b) {
  const auto x = assignments_of(a), y = assignments_of(b);
  const auto search = [](const auto& more, const GraphOutline& whose, const auto& fewer, const GraphOutline& other, const std::string& at, const std::string& at_other) {
    for (const auto& [name, nodes] : more) {
      const auto found = fewer.find(name);
      const auto count = found == fewer.end() ? 0 : found->second.size();
      if (count < nodes.size())
        return "\"" + name + "\" is mirrored, but replica " + std::to_string(whose.replica) + " assigns it at " + whose.nodes[nodes[count]].where + ", in " + at +
               ", and replica " + std::to_string(other.replica) + " does not, in " + at_other +
               ": assign the same value on every replica, or make it replica_local";
    }
    return std::string{};
  };
  const auto text = search(x, a, y, b, at_a, at_b);
  return text.empty() ? search(y, b, x, a, at_b, at_a) : text;
}

// How the two graphs differ in what a mirrored variable is given; empty if they do not, or if the value varies in both.
inline std::string assigned_differently(const GraphOutline& a, const GraphOutline& b, const OutlineNames& names) {
  const auto x = assignments_of(a), y = assignments_of(b);
  for (const auto& [name, nodes] : x) {
    const auto found = y.find(name);
    if (found == y.end()) continue;
    for (std::size_t k = 0; k < nodes.size() && k < found->second.size(); ++k) {
      const auto i = nodes[k], j = found->second[k];
      if (a.nodes[i].whole == b.nodes[j].whole || (a.nodes[i].marks.empty() && b.nodes[j].marks.empty())) continue;
      return both_texts(first_without_match(a, i, b, j), first_without_match(b, j, a, i), names) + ", so the mirrored variable \"" + name +
             "\" would be given different values at " + a.nodes[i].where + (a.nodes[i].where == b.nodes[j].where ? "" : " and " + b.nodes[j].where);
    }
  }
  return {};
}

// The same for the graphs of one process, as a whole sentence.
template <class = void>
std::string difference_of_replicas(std::span<const Graph* const> graphs) {
  if (graphs.size() < 2) return {};
  const auto first = outline_of(*graphs[0]);
  for (const auto* graph : graphs.subspan(1)) {
    const auto other = outline_of(*graph);
    const auto text = assigned_differently(first, other, {"replica " + std::to_string(first.replica), "replica " + std::to_string(other.replica)});
    if (!text.empty())
      return "the step functions of replicas " + std::to_string(first.replica) + " and " + std::to_string(other.replica) + " differ: " + text +
             ": give it the same value on every replica, or make it replica_local";
  }
  return {};
}

}  // namespace replicator::detail
