// SPDX-License-Identifier: Apache-2.0
// The analysis that finds uniform nodes: see uniformity.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <replicator/graph/graph_digest.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/graph/uniform_nodes.hpp>
#include <replicator/resolve/uniformity.hpp>

namespace replicator::detail {

// Digests of what an expression computes over a domain, operation by operation. Stored and fused parts give the same
// digest.
class ExpressionDigest {
 public:
  ExpressionDigest(const Graph& graph, const Node& node, const Expression& expression, const Shape& domain, const Uniformity& known) {
    Hasher where;
    where.word(static_cast<std::uint64_t>(expression.compute));
    add(where, domain);
    const Digest context = where.result();
    for (const auto& f : expression.code) {
      Hasher hasher;
      hasher.digest(context);
      hasher.word(static_cast<std::uint64_t>(f.op));
      if (f.op == ScalarOp::input) {
        const Value value = node.inputs[f.a];
        if (graph.type(value) == TensorType{expression.compute, domain}) {  // neither converted nor repeated
          digests_.push_back(known.digest(value));
          continue;
        }
        hasher.digest(known.digest(value));
      } else {
        hasher.word(f.bits);
        const std::uint16_t operands[] = {f.a, f.b, f.c};
        for (int i = 0; i < operands_of(f.op); ++i) hasher.digest(digests_[operands[i]]);
      }
      digests_.push_back(hasher.result());
    }
    for (const auto output : expression.outputs) outputs_.push_back(digests_[output]);
  }
  const std::vector<Digest>& outputs() const { return outputs_; }

  static void add(Hasher& hasher, const Shape& shape) {
    hasher.word(shape.rank());
    for (const auto extent : shape) hasher.word(static_cast<std::uint64_t>(extent));
  }

 private:
  std::vector<Digest> digests_, outputs_;
};

inline std::vector<Digest> digests_of_map(const Graph& graph, const Node& node, const Map& map, const Uniformity& known) {
  auto digests = ExpressionDigest{graph, node, *map.expression, map.domain, known}.outputs();
  for (std::size_t o = 0; o < digests.size(); ++o) {
    if (map.dtypes[o] == map.expression->compute) continue;
    Hasher hasher;
    hasher.digest(digests[o]);
    hasher.word(static_cast<std::uint64_t>(map.dtypes[o]));
    digests[o] = hasher.result();
  }
  return digests;
}

inline std::vector<Digest> digests_of_reduce(const Graph& graph, const Node& node, const Reduce& reduce, const Uniformity& known) {
  auto digests = ExpressionDigest{graph, node, *reduce.expression, reduce.domain, known}.outputs();
  for (std::size_t o = 0; o < digests.size(); ++o) {
    Hasher hasher;
    hasher.digest(digests[o]);
    hasher.word(static_cast<std::uint64_t>(reduce.kind));
    for (const auto axis : reduce.axes) hasher.word(static_cast<std::uint64_t>(axis));
    hasher.word(static_cast<std::uint64_t>(reduce.dtypes[o]));
    digests[o] = hasher.result();
  }
  return digests;
}

inline std::vector<Digest> digests_of_node(const Graph& graph, const Node& node, const Uniformity& known) {
  if (const auto* map = operation_of<Map>(node)) return digests_of_map(graph, node, *map, known);
  if (const auto* reduce = operation_of<Reduce>(node)) return digests_of_reduce(graph, node, *reduce, known);
  Hasher hasher;
  hash_node(hasher, graph, node);
  // The result of a collective is the same everywhere, whatever each replica contributed.
  if (!node.get<Placeholder>())
    for (const auto input : node.inputs) hasher.digest(known.digest(input));
  std::vector<Digest> digests;
  for (std::size_t o = 0; o < std::max<std::size_t>(1, node.outputs.size()); ++o) {
    hasher.word(o);
    digests.push_back(hasher.result());
  }
  return digests;
}

inline Uniformity analyse_uniformity(const Graph& graph) {
  Uniformity result;
  result.uniform = uniform_nodes(graph);
  for (const auto& node : graph.nodes()) result.digests.push_back(detail::digests_of_node(graph, node, result));
  for (std::size_t k = 0; k < graph.results().size(); ++k) {
    const auto value = graph.results()[k];
    Hasher hasher;
    hasher.text("result");
    hasher.word(k);
    hasher.digest(result.digest(value));
    result.result_digests.push_back(hasher.result());
    result.uniform_results.push_back(result.uniform[value.node]);
  }
  return result;
}

// The digests that occur in all the graphs.
inline std::set<Digest> common_digests(const std::vector<Uniformity>& all) {
  std::set<Digest> common;
  for (std::size_t g = 0; g < all.size(); ++g) {
    std::set<Digest> both;
    const auto keep = [&](const std::vector<Digest>& digests) {
      for (const auto& digest : digests)
        if (g == 0 || common.contains(digest)) both.insert(digest);
    };
    for (const auto& node : all[g].digests) keep(node);
    keep(all[g].result_digests);
    common = std::move(both);
  }
  return common;
}

// Marks values as varying if they differ between the replicas' graphs, such as a constant that depends on the replica.
// A single graph cannot show this.
inline void restrict_to(const std::set<Digest>& common, Uniformity& one) {
  for (std::size_t i = 0; i < one.uniform.size(); ++i)
    for (const auto& digest : one.digests[i])
      if (!common.contains(digest)) one.uniform[i] = false;
  for (std::size_t k = 0; k < one.uniform_results.size(); ++k)
    if (!common.contains(one.result_digests[k])) one.uniform_results[k] = false;
}

// ", because the value computed at train.cpp:31 does": the operand that makes the value of an assignment differ, if another line has
// computed it. Example: an optimizer's update of a variable to which the program has assigned a varying value before. Empty for
// gradients, which have the lines of the forward pass: there is no mistake in those.
inline std::string varying_operand(const Graph& graph, const Uniformity& uniformity, const Node& assign) {
  const std::string line = assign.where.text();
  std::vector<bool> seen(graph.nodes().size());
  std::vector<std::uint32_t> open{assign.inputs[0].node};
  if (graph.node(open[0]).where.text() != line) return {};
  while (!open.empty()) {
    const auto& node = graph.node(open.back());
    open.pop_back();
    for (const auto input : node.inputs) {
      const auto& from = graph.node(input);
      if (uniformity.uniform[input.node] || seen[input.node] || !*from.where.file || from.marks.order > 0) continue;
      seen[input.node] = true;
      if (from.where.text() != line) return ", because the value computed at " + from.where.text() + " does";
      open.push_back(input.node);
    }
  }
  return {};
}

// Whether the assigned value differs because a gradient does: an optimizer was not wrapped, say.
inline bool has_varying_gradient(const Graph& graph, const Uniformity& uniformity, const Node& assign) {
  const std::uint32_t last = assign.inputs[0].node;
  std::vector<bool> reached(last + 1);
  reached[last] = true;
  for (std::uint32_t i = last + 1; i-- > 0;) {
    if (!reached[i] || uniformity.uniform[i]) continue;
    if (graph.node(i).marks.order > 0) return true;
    for (const auto input : graph.node(i).inputs) reached[input.node] = true;
  }
  return false;
}

// Throws BuildError if a mirrored variable is assigned a varying value, or not the same value on all replicas.
// `different()`: how the graphs of replicas differ in such a value; empty if they do not.
template <class Different>
void check_assignments(const Graph& graph, const Uniformity& uniformity, Different different) {
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const auto& node = graph.nodes()[i];
    const auto* assign = node.get<Assign>();
    if (!assign || uniformity.uniform[i]) continue;
    const auto& variable = graph.variables()[assign->variable];
    if (variable.kind == VariableKind::replica_local) continue;
    if (const std::string text = different(); !text.empty()) throw BuildError{text};
    if (!uniformity.uniform[node.inputs[0].node])
      throw BuildError{"\"" + variable.name + "\" is mirrored, but the value assigned at " + node.where.text() +
                       " differs between replicas" + varying_operand(graph, uniformity, node) + ": an all_reduce is missing, or make it replica_local" +
                       (has_varying_gradient(graph, uniformity, node) ? ". It is computed from a gradient of this replica: rp::nn::wrap_optimizer(optimizer) averages "
                                                                        "gradients over the replicas"
                                                                      : "")};
    throw BuildError{"\"" + variable.name + "\" is mirrored, but replica " + std::to_string(graph.replica()) + " assigns it at " + node.where.text() +
                     " and not all replicas do the same: assign the same value on every replica, or make it replica_local"};
  }
}

}  // namespace replicator::detail
