// SPDX-License-Identifier: Apache-2.0
// Reorders the axes of a tensor. Any dtype.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/movement/axis.hpp>

namespace replicator {

// Axis i of the result is axis permutation[i] of x.
struct Transpose {
  static constexpr std::string_view name = "transpose";
  AxisValues permutation;

  template <class V>
  void describe(V& v) const {
    v("permutation", permutation);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const auto& x = inputs[0];
    detail::require_per_axis("permutation", permutation, x);
    std::array<bool, Shape::max_rank> seen{};
    Shape shape;
    for (const auto axis : permutation) {
      if (axis < 0 || axis >= static_cast<std::int64_t>(x.shape.rank()) ||
          std::exchange(seen[static_cast<std::size_t>(axis)], true))
        throw BuildError{"asked for the axes " + text_of(permutation) + " of " + x.text() + ": name each of 0 to " +
                         std::to_string(x.shape.rank() - 1) + " once"};
      shape.push_back(x.shape[static_cast<std::size_t>(axis)]);
    }
    return {{x.dtype, shape}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    AxisValues inverse(permutation.size());
    for (std::size_t i = 0; i < permutation.size(); ++i)
      inverse[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
    return {compute(at.graph, Transpose{std::move(inverse)}, {at.upstream[0]}, at.where)};
  }

 private:
  // "[1, -1]"
  static std::string text_of(const AxisValues& values) {
    std::string result;
    for (const auto value : values) result += (result.empty() ? "[" : ", ") + std::to_string(value);
    return result + "]";
  }
};

// Reorders the axes: axis i of the result is axis permutation[i] of x. Throws BuildError unless each axis is named once.
template <Element T>
Tensor<T> transpose(Tensor<T> x, AxisValues permutation, std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(x.graph(), Transpose{std::move(permutation)}, {x}, where)};
}
// All axes in reverse order: rows become columns.
template <Element T>
Tensor<T> transpose(Tensor<T> x, std::source_location where = std::source_location::current()) {
  AxisValues reversed(x.shape().rank());
  for (std::size_t i = 0; i < reversed.size(); ++i) reversed[i] = static_cast<std::int64_t>(reversed.size() - 1 - i);
  return transpose(x, std::move(reversed), where);
}

}  // namespace replicator
