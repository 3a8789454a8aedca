// SPDX-License-Identifier: Apache-2.0
// A warning about a loss in which shapes of different ranks broadcast by mistake: [8, 1] - [8] is [8, 8], the difference of each
// element and every other one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::nn::detail {

// Whether a program may want all pairs of this value. It may if the value is a constant, a variable such as centres of clusters, or the
// result of a collective, or if the program has added axes of extent 1 to it. Elementwise operations on that value alone change nothing.
template <class = void>
bool meant_for_pairs(const Graph& graph, Value value) {
  for (;;) {
    const auto& node = graph.node(value);
    const auto* compute = node.get<replicator::detail::Compute>();
    if (!compute) return !node.get<replicator::detail::Input>();
    if (compute->operation.get<Reshape>()) return graph.type(value).shape.rank() > graph.type(node.inputs[0]).shape.rank();
    if (node.inputs.size() != 1 || !(compute->operation.get<Map>() || compute->operation.get<StopGradient>())) return false;
    value = node.inputs[0];
  }
}

// Whether the expression subtracts what depends on one input from what depends on another one.
template <class = void>
bool subtracts(const replicator::detail::Expression& expression, std::size_t one, std::size_t other) {
  std::vector<std::pair<bool, bool>> depends;  // on `one` and `other`, by instruction
  for (const auto& f : expression.code) {
    auto& here = depends.emplace_back();
    if (f.op == replicator::detail::ScalarOp::input) {
      here = {f.a == one, f.a == other};
      continue;
    }
    const std::uint16_t operands[] = {f.a, f.b, f.c};
    for (int i = 0; i < replicator::detail::operands_of(f.op); ++i) here = {here.first || depends[operands[i]].first, here.second || depends[operands[i]].second};
    if (f.op != replicator::detail::ScalarOp::subtract) continue;
    const auto &a = depends[f.a], &b = depends[f.b];
    if ((a.first && b.second) || (a.second && b.first)) return true;
  }
  return false;
}

// Two inputs that the node subtracts from each other, and that broadcast to all pairs: their ranks differ, and their extents do not,
// but for those of 1. Nothing where an input has the shape of the result, because then that input has the pairs already.
template <class = void>
std::optional<std::pair<Value, Value>> accidental_pairs(const Graph& graph, const replicator::detail::Node& node) {
  const auto* compute = node.get<replicator::detail::Compute>();
  const auto* map = compute ? compute->operation.get<Map>() : nullptr;
  if (!map || node.inputs.size() < 2) return {};
  const auto shape = [&](Value value) -> const Shape& { return graph.type(value).shape; };
  if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](Value value) { return shape(value) == map->domain; })) return {};
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    for (std::size_t k = i + 1; k < node.inputs.size(); ++k) {
      const Value a = node.inputs[i], b = node.inputs[k];
      const bool equal = shape(a).rank() != shape(b).rank() && replicator::detail::without_ones(shape(a)) == replicator::detail::without_ones(shape(b));
      if (equal && subtracts(*map->expression, i, k) && !meant_for_pairs(graph, a) && !meant_for_pairs(graph, b)) return std::pair{a, b};
    }
  return {};
}

// A line on stderr, of replica 0 alone, about the last node from which the loss is computed and that makes such pairs.
template <class = void>
void warn_of_accidental_pairs(AnyTensor loss, Location where) {
  const Graph& graph = loss.graph();
  if (graph.replica() != 0) return;
  std::vector<bool> needed(loss.value().node + 1);
  needed.back() = true;
  for (auto i = static_cast<std::uint32_t>(needed.size()); i-- > 0;) {
    const auto& node = graph.node(i);
    if (!needed[i] || replicator::detail::ends_gradients(node)) continue;
    for (const auto input : node.inputs) needed[input.node] = true;
    const auto found = accidental_pairs(graph, node);
    if (!found) continue;
    const auto &a = graph.type(found->first), &b = graph.type(found->second);
    Shape pairs;  // what the program would reshape the shorter one to
    const Shape &higher = a.shape.rank() > b.shape.rank() ? a.shape : b.shape, &lower = a.shape.rank() > b.shape.rank() ? b.shape : a.shape;
    for (std::size_t axis = lower.rank(); axis < higher.rank(); ++axis) pairs.push_back(1);
    for (const auto extent : lower) pairs.push_back(extent);
    std::fprintf(stderr,
                 "replicator: the loss minimised at %s has the difference of %s and %s at %s, which broadcast to %s, all pairs of their elements. "
                 "Give both the same shape by rp::reshape; if all pairs are meant, reshape %s to %s\n",
                 where.text().c_str(), a.text().c_str(), b.text().c_str(), node.where.text().c_str(), node.outputs[0].shape.text().c_str(),
                 lower.text().c_str(), pairs.text().c_str());
    return;
  }
}

}  // namespace replicator::nn::detail
