// SPDX-License-Identifier: Apache-2.0
// Joins tensors along an axis that exists (concat) or a new one (stack). Any dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/slice.hpp>

namespace replicator {

// Joins the inputs along an axis, one after the other. All other extents are equal.
struct Concat {
  static constexpr std::string_view name = "concat";
  std::int64_t axis = 0;

  template <class V>
  void describe(V& v) const {
    v("axis", axis);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    if (inputs.empty()) throw BuildError{"found nothing to put together: give at least one tensor"};
    TensorType result = inputs[0];
    const auto along = static_cast<std::size_t>(detail::require_axis(axis, result.shape.rank()));
    for (const auto& input : inputs.subspan(1)) {
      Shape expected = inputs[0].shape;
      if (input.shape.rank() == expected.rank()) expected[along] = input.shape[along];
      if (input.dtype != result.dtype || !(input.shape == expected))
        throw BuildError{"found " + inputs[0].text() + " and " + input.text() + ": all but the extent of axis " +
                         std::to_string(axis) + " must be equal"};
      result.shape[along] += input.shape[along];
    }
    return {result};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    const Shape whole = at.upstream[0].shape();
    const auto along = static_cast<std::size_t>(axis);
    std::int64_t first = 0;
    std::vector<AnyTensor> result;
    for (const auto& input : at.inputs) {
      Slice slice{AxisValues(whole.rank(), 0), AxisValues(whole.begin(), whole.end()), AxisValues(whole.rank(), 1)};
      slice.begin[along] = first;
      slice.end[along] = first += input.shape()[along];
      result.push_back(compute(at.graph, std::move(slice), {at.upstream[0]}, at.where));
    }
    return result;
  }
};

// Joins the tensors along an axis (-1: the last), one after the other.
template <Element T>
Tensor<T> concat(std::span<const Tensor<T>> parts, std::int64_t axis,
                 std::source_location where = std::source_location::current()) {
  const Concat op = detail::at_line("concat", where, [&] {
    if (parts.empty()) throw BuildError{"found nothing to put together: give at least one tensor"};
    return Concat{detail::require_axis(axis, parts[0].shape().rank())};
  });
  const std::vector<AnyTensor> inputs(parts.begin(), parts.end());
  return Tensor<T>{parts[0].graph().tensor(add_compute(parts[0].graph(), op, inputs, where))};
}
template <Element T>
Tensor<T> concat(std::initializer_list<Tensor<T>> parts, std::int64_t axis,
                 std::source_location where = std::source_location::current()) {
  return concat(std::span<const Tensor<T>>{parts.begin(), parts.size()}, axis, where);
}

template <Element T>
Tensor<T> concat(const std::vector<Tensor<T>>& parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return concat(std::span<const Tensor<T>>{parts}, axis, where);
}

// Joins tensors of one shape along a new axis, which comes before their axis `axis` (-1: after the last).
template <Element T>
Tensor<T> stack(std::span<const Tensor<T>> parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  if (parts.empty()) throw BuildError{"stack at " + Location{where}.text() + ": found nothing to put together"};
  std::vector<Tensor<T>> rows;
  for (const auto& part : parts) {
    if (!(part.shape() == parts[0].shape()))
      throw BuildError{"stack at " + Location{where}.text() + ": found " + parts[0].any().type().text() + " and " + part.any().type().text() +
                       ": all must have one shape; rp::concat puts together what differs along an axis"};
    rows.push_back(expand_dims(part, axis, where));
  }
  return concat(rows, axis, where);
}
template <Element T>
Tensor<T> stack(std::initializer_list<Tensor<T>> parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return stack(std::span<const Tensor<T>>{parts.begin(), parts.size()}, axis, where);
}
template <Element T>
Tensor<T> stack(const std::vector<Tensor<T>>& parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return stack(std::span<const Tensor<T>>{parts}, axis, where);
}

}  // namespace replicator
