// SPDX-License-Identifier: Apache-2.0
// The pass that removes conversions from bfloat16 to float32 and back.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/logical_device.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

namespace detail {

// Whether the node only converts between types.
inline bool is_conversion(const Node& node) {
  const auto* map = operation_of<Map>(node);
  return map && map->dtypes.size() == 1 && map->expression->code.size() == 1 && map->expression->code[0].op == ScalarOp::input;
}

// The bfloat16 value of which this is the widened float32; empty for any other value.
inline std::optional<Value> before_widening(const Graph& graph, Value value) {
  const auto& node = graph.node(value.node);
  if (!is_conversion(node) || node.outputs[0].dtype != DType::float32) return std::nullopt;
  const bool same_shape = graph.type(node.inputs[0]) == TensorType{DType::bfloat16, node.outputs[0].shape};
  return same_shape ? std::optional{node.inputs[0]} : std::nullopt;
}

// The value before a conversion from bfloat16 to float32 and back; empty where the node does not convert back.
inline std::optional<Value> before_round_trip(const Graph& graph, const Node& node) {
  if (!is_conversion(node)) return std::nullopt;
  const auto before = before_widening(graph, node.inputs[0]);
  return before && graph.type(*before) == node.outputs[0] ? before : std::nullopt;
}

// Replaces a node with a float32 result by `narrow`, which gives bfloat16, and a widening.
inline void replace_widened(Rewriter& rewriter, std::uint32_t old, Node narrow) {
  const Location where = narrow.where;
  const LogicalDeviceScope there{rewriter.to(), narrow.device};
  const ScopedValue marks{rewriter.to().marks(), narrow.marks};
  const AnyTensor value = rewriter.to().tensor(rewriter.to().add(std::move(narrow)));
  rewriter.replace(old, {converted(value, DType::float32, where).value()});
}

}  // namespace detail

// Every bfloat16 is exactly a float32. So where one was widened and is rounded again, the first value replaces the last.
inline Graph drop_round_trips(const Graph& graph) {
  Rewriter rewriter{graph};
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    if (const auto before = detail::before_round_trip(graph, graph.node(i))) rewriter.replace(i, {rewriter(*before)});
    else rewriter.copy(i);
  }
  return std::move(rewriter).finish();
}

}  // namespace replicator::detail::passes
