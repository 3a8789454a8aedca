// SPDX-License-Identifier: Apache-2.0
// The largest elements along an axis, and their places.
#pragma once

#include <cstdint>
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/ops/gather.hpp>

namespace replicator {

// Outputs: the k largest elements along the axis in descending order, and their int32 places. Of equal elements the lower place
// comes first. NaN counts as larger than every number, and as equal to NaN.
struct TopK {
  static constexpr std::string_view name = "top_k";
  std::int64_t axis = 0;  // from the front
  std::int64_t k = 1;

  template <class V>
  void describe(V& v) const {
    v("axis", axis);
    v("k", k);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, inputs[0].shape.rank()));
    const std::int64_t extent = inputs[0].shape[at];
    if (k < 1 || k > extent || extent > std::numeric_limits<std::int32_t>::max())
      throw BuildError{"asked for the " + std::to_string(k) + " largest along axis " + std::to_string(axis) + " of " +
                       inputs[0].text() + ": take at least 1 and at most the extent, which must fit an int32"};
    Shape shape = inputs[0].shape;
    shape[at] = k;
    return {{inputs[0].dtype, shape}, {DType::int32, shape}};
  }
  // The gradient of each value goes to its place. Where the order changes there is no derivative.
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

namespace detail {

// Converts places [A.., k, B..] along an axis of x [A.., n, B..] to places among x's row-major elements: [A k B] of int64.
inline AnyTensor places_in_memory(AnyTensor places, const Shape& x, std::size_t axis, Location where) {
  std::int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= x[i];
  for (std::size_t i = axis + 1; i < x.rank(); ++i) inner *= x[i];
  Array<std::int64_t> blocks{{outer, 1, 1}}, columns{{inner}};
  for (std::int64_t i = 0; i < outer; ++i) blocks[i] = i * x[axis] * inner;
  for (std::int64_t i = 0; i < inner; ++i) columns[i] = i;
  detail::Expression e;
  e.compute = DType::int64;
  e.inputs = 3;
  const auto row = e.apply(detail::ScalarOp::multiply, e.input(0), e.constant(inner));
  e.outputs = {e.apply(detail::ScalarOp::add, e.apply(detail::ScalarOp::add, row, e.input(1)), e.input(2))};
  Graph& graph = places.graph();
  const AnyTensor inputs[] = {reshape(places, Shape{outer, places.shape()[axis], inner}, where),
                              constant_node(graph, std::move(blocks).any(), where),
                              constant_node(graph, std::move(columns).any(), where)};
  return reshape(map_node(graph, std::move(e), inputs, DType::int64, where), Shape{places.shape().elements()}, where);
}

}  // namespace detail

inline std::vector<AnyTensor> TopK::gradient(const GradientContext& at) const {
  if (!at.upstream[0]) return {AnyTensor{}};
  const Shape& x = at.inputs[0].shape();
  const auto places = detail::places_in_memory(at.outputs[1], x, static_cast<std::size_t>(axis), at.where);
  const auto slopes = reshape(at.upstream[0], Shape{at.upstream[0].shape().elements()}, at.where);
  return {reshape(compute(at.graph, ScatterAdd{0, x.elements()}, {slopes, places}, at.where), x, at.where)};
}

template <Element T>
struct Ranked {
  Tensor<T> values;
  Tensor<std::int32_t> indices;  // where they lie along the axis
};

// x [A.., n, B..] -> two of [A.., k, B..]: the k largest along an axis (-1: the last) in descending order, and their places. Of
// equal elements the lower place comes first. NaN is larger than every number. Gradients flow through the values.
// Throws BuildError unless 1 <= k <= n.
//   const auto [values, indices] = rp::top_k(logits, 5);
template <Element T>
Ranked<T> top_k(Tensor<T> x, std::int64_t k, std::int64_t axis = -1,
                std::source_location where = std::source_location::current()) {
  const auto from_front = detail::at_line("top_k", where, [&] { return detail::require_axis(axis, x.shape().rank()); });
  const AnyTensor input = x;
  const auto node = add_compute(x.graph(), TopK{from_front, k}, {&input, 1}, where);
  return {Tensor<T>{x.graph().tensor(node, 0)}, Tensor<std::int32_t>{x.graph().tensor(node, 1)}};
}

}  // namespace replicator
