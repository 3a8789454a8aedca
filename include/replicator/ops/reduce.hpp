// SPDX-License-Identifier: Apache-2.0
// Reductions over axes. Negative axes count from the end. No axes means all axes.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include <replicator/graph/tensor.hpp>

namespace replicator {

struct Axes {
  std::vector<std::int64_t> axes;  // empty: all
  bool keep = false;               // keep the reduced axes with extent 1

  Axes() = default;
  template <std::integral Axis>
  Axes(Axis axis) : axes{static_cast<std::int64_t>(axis)} {}  // NOLINT: implicit on purpose
  Axes(std::initializer_list<std::int64_t> list) : axes{list} {}
  // sum(x, rp::Axes{0, 2}.kept()). The constructor above takes no second argument, because {{0}, true} would read as two axes.
  Axes kept() const {
    Axes result = *this;
    result.keep = true;
    return result;
  }
};

namespace detail {

// The axes, sorted and not negative. Throws BuildError for an axis that does not exist or is named twice.
template <class = void>
std::vector<std::int64_t> resolve_axes(const Axes& axes, const Shape& shape, std::string_view operation, Location where) {
  const auto rank = static_cast<std::int64_t>(shape.rank());
  std::vector<std::int64_t> result;
  for (auto axis : axes.axes) {
    if (axis < -rank || axis >= rank)
      throw BuildError{std::string{operation} + " at " + where.text() + ": the axis " + std::to_string(axis) + " does not exist in the shape " +
                       shape.text()};
    result.push_back(axis < 0 ? axis + rank : axis);
  }
  if (axes.axes.empty())
    for (std::int64_t axis = 0; axis < rank; ++axis) result.push_back(axis);
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    throw BuildError{std::string{operation} + " at " + where.text() + ": an axis is named twice for the shape " + shape.text()};
  return result;
}

template <class = void>
AnyTensor reduce(ReduceKind kind, AnyTensor x, const Axes& axes, std::string_view operation, Location where) {
  const auto resolved = resolve_axes(axes, x.shape(), operation, where);
  detail::Expression e;
  e.compute = compute_type(x.dtype());
  e.inputs = 1;
  e.outputs = {e.input(0)};
  const AnyTensor result = reduce_node(x.graph(), kind, std::move(e), {&x, 1}, x.shape(), resolved, x.dtype(), where);
  return axes.keep ? reshape(result, keep_axes(x.shape(), resolved), where) : result;
}

inline std::int64_t reduced_elements(const Shape& shape, const std::vector<std::int64_t>& axes) {
  std::int64_t n = 1;
  for (const auto axis : axes) n *= shape[static_cast<std::size_t>(axis)];
  return n;
}

}  // namespace detail

// The sum over the axes (all by default), which disappear unless they are kept. The sum of no elements is 0. bfloat16 is added in
// float32 and rounded once. Sums of int32 and int64 wrap around, and those of uint8 are cut to 8 bits. To count what is true, cast
// it first; rp::max says whether any element is true. Like all reductions it throws BuildError for an axis that does not exist or is named twice.
template <Element T>
Tensor<T> sum(Tensor<T> x, const Axes& axes = {}, std::source_location where = std::source_location::current()) {
  static_assert(!std::same_as<T, bool>, "replicator: a sum of bool is no number: rp::sum(rp::cast<float>(x)) counts, and rp::max(x) says whether any is true");
  return Tensor<T>{detail::reduce(ReduceKind::sum, x, axes, "sum", where)};
}

// The sum divided by the number of elements. It is NaN where there are none.
template <Element T>
Tensor<T> mean(Tensor<T> x, const Axes& axes = {}, std::source_location where = std::source_location::current()) {
  static_assert(FloatingElement<T>, "replicator: mean takes a floating type: rp::mean(rp::cast<float>(x))");
  const auto n = detail::reduced_elements(x.shape(), detail::resolve_axes(axes, x.shape(), "mean", where));
  return Tensor<T>{apply(detail::ScalarOp::divide, detail::reduce(ReduceKind::sum, x, axes, "mean", where), static_cast<double>(n), where)};
}

// The largest element; a NaN among them wins. Where several attain it, each gets an equal part of the gradient. Throws BuildError
// where a result would be made of no elements.
template <Element T>
Tensor<T> max(Tensor<T> x, const Axes& axes = {}, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::reduce(ReduceKind::max, x, axes, "max", where)};
}
// The smallest element. All else is as for max.
template <Element T>
Tensor<T> min(Tensor<T> x, const Axes& axes = {}, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::reduce(ReduceKind::min, x, axes, "min", where)};
}

namespace detail {
template <class>
inline constexpr bool is_operand = false;
template <class T>
inline constexpr bool is_operand<Tensor<T>> = true;
template <std::floating_point T>
inline constexpr bool is_operand<T> = true;
}  // namespace detail

// Of two operands it is another function.
template <Element T, class B>
requires detail::is_operand<B>
    Tensor<T> max(Tensor<T> x, B) {
  static_assert(!std::same_as<B, B>, "replicator: rp::max reduces over axes: rp::maximum(a, b) takes the larger of two tensors, or of a tensor and a number");
  return x;
}
template <Element T, class B>
requires detail::is_operand<B>
    Tensor<T> min(Tensor<T> x, B) {
  static_assert(!std::same_as<B, B>, "replicator: rp::min reduces over axes: rp::minimum(a, b) takes the smaller of two tensors, or of a tensor and a number");
  return x;
}

}  // namespace replicator
