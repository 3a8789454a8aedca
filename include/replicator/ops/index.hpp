// SPDX-License-Identifier: Apache-2.0
// Operations between elements and their places: iota, one_hot, argmax.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>

namespace replicator {

// The place of the maximum along an axis: the first of several; a NaN wins. The axis disappears.
struct ArgMax {
  static constexpr std::string_view name = "argmax";
  std::int64_t axis = 0;

  template <class V>
  void describe(V& v) const {
    v("axis", axis);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const Shape& x = inputs[0].shape;
    if (axis < 0 || axis >= static_cast<std::int64_t>(x.rank()))
      throw BuildError{"asked for axis " + std::to_string(axis) + " of " + inputs[0].text() + ": axes count from 0, or from -1 at the end"};
    const std::int64_t extent = x[static_cast<std::size_t>(axis)];
    if (extent < 1 || extent > std::numeric_limits<std::int32_t>::max())
      throw BuildError{"axis " + std::to_string(axis) + " of " + inputs[0].text() +
                       " has no maximum with an int32 place: its extent must be at least 1 and fit an int32"};
    Shape shape;
    for (std::size_t i = 0; i < x.rank(); ++i)
      if (static_cast<std::int64_t>(i) != axis) shape.push_back(x[i]);
    return {{DType::int32, shape}};
  }
  // The result is piecewise constant, so there is no gradient.
  std::vector<AnyTensor> gradient(const GradientContext&) const { return {AnyTensor{}}; }
};

// The place of the maximum along an axis (the last by default), which disappears. Of several it is the first; a NaN wins.
template <Element T>
Tensor<std::int32_t> argmax(Tensor<T> x, std::int64_t axis = -1,
                            std::source_location where = std::source_location::current()) {
  const auto rank = static_cast<std::int64_t>(x.shape().rank());
  return Tensor<std::int32_t>{compute(x.graph(), ArgMax{axis < 0 ? axis + rank : axis}, {x}, where)};
}

// 0, 1, ... n - 1, as a constant of the graph. Throws BuildError for a negative n.
inline Tensor<std::int32_t> iota(Graph& graph, std::int32_t n,
                                 std::source_location where = std::source_location::current()) {
  if (n < 0) throw BuildError{detail::call_text(graph.replica(), "iota", where) + ": asked for " + std::to_string(n) + " numbers: ask for 0 or more"};
  Array<std::int32_t> places{Shape{n}};
  for (std::int32_t i = 0; i < n; ++i) places[i] = i;
  return Tensor<std::int32_t>{constant_node(graph, std::move(places).any(), where)};
}

// labels [...] of int32 or int64 -> [..., classes]: 1 at the label, 0 elsewhere; all 0 for a label outside of [0, classes).
// Throws BuildError for less than one class.
template <Element T = float, std::integral I>
requires(std::same_as<I, std::int32_t> || std::same_as<I, std::int64_t>)
    Tensor<T> one_hot(Tensor<I> labels, std::int32_t classes,
                      std::source_location where = std::source_location::current()) {
  if (classes < 1)
    throw BuildError{detail::call_text(labels.graph().replica(), "one_hot", where) + ": asked for " + std::to_string(classes) +
                     " classes of labels " + labels.any().type().text() + ": give the number of classes, at least 1"};
  Shape column = labels.shape();
  column.push_back(1);
  const AnyTensor inputs[] = {reshape(labels, column, where), iota(labels.graph(), classes, where)};
  detail::Expression e;
  e.compute = dtype_of<I>;
  e.inputs = 2;
  e.outputs = {e.apply(detail::ScalarOp::equal, e.input(0), e.input(1))};
  return Tensor<T>{map_node(labels.graph(), std::move(e), inputs, dtype_of<T>, where)};
}

}  // namespace replicator
