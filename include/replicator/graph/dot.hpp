// SPDX-License-Identifier: Apache-2.0
// Prints graphs as text for Graphviz: `dot -Tsvg step.dot > step.svg`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/graph/graph_digest.hpp>
#include <replicator/graph/node_text.hpp>

namespace replicator::detail {

// Escapes quotes and backslashes for a label.
inline std::string dot_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// "0", "0-3", "0-1, 5"
inline std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[i]);
    if (end - i > 1) text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

// The style of a node. Placeholders stand out, because they cannot run before resolution; variables are cylinders.
inline std::string dot_style(const Node& node) {
  if (node.get<Placeholder>()) return "shape=doubleoctagon, style=filled, fillcolor=orange";
  if (node.get<Read>() || node.get<Assign>()) return "shape=cylinder, style=filled, fillcolor=lightblue";
  if (node.get<Input>()) return "shape=invhouse, style=filled, fillcolor=palegreen";
  if (node.get<Constant>()) return "shape=note";
  return "shape=box";
}

inline std::string dot_label(const Graph& graph, std::uint32_t index) {
  const auto& node = graph.node(index);
  std::string label = dot_text(node_text(graph, index));
  if (const auto formula = formula_of(node, 60); !formula.empty()) label += "\\n" + dot_text(formula);
  std::string types;
  for (const auto& output : node.outputs) types += (types.empty() ? "" : ", ") + output.text();
  if (!types.empty()) label += "\\n" + types;
  if (node.where.line) label += "\\n" + dot_text(node.where.text());
  return label;
}

// Adds one graph as a cluster. Node names begin with `prefix`; `more(node)` returns additional attributes.
template <class More>
void add_dot_cluster(std::string& text, const Graph& graph, const std::string& prefix, const std::string& title, More more) {
  text += "  subgraph \"cluster_" + prefix + "\" {\n    label=\"" + dot_text(title) + "\";\n";
  const auto name = [&](std::uint32_t node) { return prefix + "_" + std::to_string(node); };
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
    text += "    " + name(i) + " [" + dot_style(graph.node(i)) + ", label=\"" + dot_label(graph, i) + "\"" + more(i) + "];\n";
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
    for (const auto input : graph.node(i).inputs) text += "    " + name(input.node) + " -> " + name(i) + ";\n";
  for (std::size_t k = 0; k < graph.results().size(); ++k) {
    const auto result = prefix + "_result" + std::to_string(k);
    text += "    " + result + " [shape=oval, label=\"result " + std::to_string(k) + "\"];\n    " +
            name(graph.results()[k].node) + " -> " + result + ";\n";
  }
  text += "  }\n";
}

inline std::string dot_title(const std::vector<int>& replicas) { return (replicas.size() == 1 ? "replica " : "replicas ") + ranges(replicas); }

// The graphs of replicas as they were traced. Equal graphs are drawn once. Follows the order of the replicas and of the
// program.
template <class = void>
std::string dot(std::span<const Graph> graphs) {
  std::vector<std::pair<Digest, std::vector<std::size_t>>> folded;
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    const auto digest = digest_of(graphs[g]);
    std::size_t k = 0;
    while (k < folded.size() && !(folded[k].first == digest)) ++k;
    if (k == folded.size()) folded.push_back({digest, {}});
    folded[k].second.push_back(g);
  }
  std::string text = "digraph step {\n  node [fontsize=10];\n";
  for (const auto& [digest, members] : folded) {
    std::vector<int> replicas;
    for (const auto g : members) replicas.push_back(graphs[g].replica());
    detail::add_dot_cluster(text, graphs[members[0]], "r" + std::to_string(replicas[0]), detail::dot_title(replicas),
                            [](std::uint32_t) { return ""; });
  }
  return text + "}\n";
}

}  // namespace replicator::detail
