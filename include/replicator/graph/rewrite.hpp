// SPDX-License-Identifier: Apache-2.0
// Rewriter: builds a graph from another one. All passes use it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <replicator/graph/graph.hpp>

namespace replicator::detail {

// Copies nodes from one graph to another, and replaces some of them on the way.
class Rewriter {
 public:
  explicit Rewriter(const Graph& from) : from_{from}, to_{from.replica(), from.replicas(), from.logical_devices()}, values_(from.nodes().size()) {
    for (const auto& declaration : from.variables()) to_.declare(declaration);
  }

  const Graph& from() const { return from_; }
  Graph& to() { return to_; }
  const Graph& to() const { return to_; }

  // The new value that replaces an old one.
  Value operator()(Value old) const { return values_[old.node][old.output]; }
  AnyTensor tensor(Value old) { return {to_, (*this)(old)}; }
  bool done(std::uint32_t old) const { return !values_[old].empty() || from_.node(old).outputs.empty(); }

  void replace(std::uint32_t old, std::vector<Value> by) { values_[old] = std::move(by); }
  void replace(std::uint32_t old, std::uint32_t by) {
    std::vector<Value> outputs;
    for (std::uint32_t o = 0; o < from_.node(old).outputs.size(); ++o) outputs.push_back({by, o});
    replace(old, std::move(outputs));
  }
  // The old node, applied to the new values of its inputs.
  Node renewed(std::uint32_t old) const {
    Node node = from_.node(old);
    for (auto& input : node.inputs) input = (*this)(input);
    return node;
  }
  std::uint32_t copy(std::uint32_t old) {
    const auto index = to_.add(renewed(old));
    replace(old, index);
    return index;
  }
  Graph finish() && {
    for (const auto result : from_.results()) to_.results().push_back((*this)(result));
    return std::move(to_);
  }

 private:
  const Graph& from_;
  Graph to_;
  std::vector<std::vector<Value>> values_;
};

// A new graph, and for each of its nodes the old values that its outputs are; for a node without outputs, the old node.
struct TracedBack {
  Graph graph;
  std::vector<std::vector<Value>> origins;
};

// What a node makes, for TracedBack::origins. It has the old node's number and outputs.
inline std::vector<Value> values_of(const Graph& graph, std::uint32_t index) {
  std::vector<Value> values;
  for (std::uint32_t o = 0; o < std::max<std::size_t>(1, graph.node(index).outputs.size()); ++o) values.push_back({index, o});
  return values;
}

// For each node, its users, once per use.
inline std::vector<std::vector<std::uint32_t>> users_of(const Graph& graph) {
  std::vector<std::vector<std::uint32_t>> users(graph.nodes().size());
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
    for (const auto input : graph.node(i).inputs) users[input.node].push_back(i);
  return users;
}

// The operation of a Compute node; null where it is another one.
template <class Op>
const Op* operation_of(const Node& node) {
  const auto* compute = node.get<Compute>();
  return compute ? compute->operation.get<Op>() : nullptr;
}

}  // namespace replicator::detail
