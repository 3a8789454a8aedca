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

// The shape without its extents of 1.
inline Shape long_axes(const Shape& shape) {
  Shape result;
  for (const auto extent : shape)
    if (extent != 1) result.push_back(extent);
  return result;
}

// Whether a program may want all pairs of this value: it has reshaped the value, or the value is a constant or a variable, such as
// centres.
inline bool meant_for_pairs(const replicator::detail::Node& node) {
  const auto* compute = node.get<replicator::detail::Compute>();
  return compute ? compute->operation.get<Reshape>() != nullptr : !node.get<replicator::detail::Input>();
}

// Two inputs of the node, if it subtracts, the two have the same extents save those of 1 and another rank, and no input has the
// result's shape.
inline std::optional<std::pair<Value, Value>> accidental_pairs(const Graph& graph, const replicator::detail::Node& node) {
  const auto* compute = node.get<replicator::detail::Compute>();
  const auto* map = compute ? compute->operation.get<Map>() : nullptr;
  if (!map || node.inputs.size() < 2) return {};
  const auto& code = map->expression->code;
  if (std::none_of(code.begin(), code.end(), [](const auto& i) { return i.op == replicator::detail::ScalarOp::subtract; })) return {};
  const auto shape = [&](Value value) -> const Shape& { return graph.type(value).shape; };
  if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](Value value) { return shape(value) == map->domain; })) return {};
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    for (std::size_t k = i + 1; k < node.inputs.size(); ++k) {
      const Value a = node.inputs[i], b = node.inputs[k];
      const bool equal = shape(a).rank() != shape(b).rank() && long_axes(shape(a)) == long_axes(shape(b));
      if (equal && !meant_for_pairs(graph.node(a)) && !meant_for_pairs(graph.node(b))) return std::pair{a, b};
    }
  return {};
}

// A line on stderr, of replica 0 alone, about the last such node on the loss's way to its variables.
template <class = void>
void note_accidental_pairs(AnyTensor loss, Location where) {
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
