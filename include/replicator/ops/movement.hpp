// SPDX-License-Identifier: Apache-2.0
// Operations that move elements without computing: transpose, slice, split, pad, concat, stack and changes of shape. Any dtype.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>

namespace replicator {

using AxisValues = std::vector<std::int64_t>;  // one per axis

namespace detail {
inline void require_per_axis(std::string_view what, const AxisValues& values, const TensorType& x) {
  if (values.size() != x.shape.rank())
    throw BuildError{"found " + std::to_string(values.size()) + " values of " + std::string{what} + " for " + x.text() +
                     ": give one for each axis"};
}
// Axis -1 is the last. Throws BuildError.
inline std::int64_t require_axis(std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank)
    throw BuildError{"asked for axis " + std::to_string(axis) + " of a tensor of " + std::to_string(rank) +
                     " dimensions"};
  return axis < 0 ? axis + signed_rank : axis;
}
}  // namespace detail

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

// Elements begin, begin + step, ... before end along each axis.
struct Slice {
  static constexpr std::string_view name = "slice";
  AxisValues begin, end, step;

  template <class V>
  void describe(V& v) const {
    v("begin", begin);
    v("end", end);
    v("step", step);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const auto& x = inputs[0];
    detail::require_per_axis("begin", begin, x);
    detail::require_per_axis("end", end, x);
    detail::require_per_axis("step", step, x);
    Shape shape;
    for (std::size_t i = 0; i < x.shape.rank(); ++i) {
      if (begin[i] < 0 || end[i] < begin[i] || end[i] > x.shape[i] || step[i] < 1)
        throw BuildError{"asked for elements " + std::to_string(begin[i]) + " to " + std::to_string(end[i]) +
                         " in steps of " + std::to_string(step[i]) + " of axis " + std::to_string(i) + " of " +
                         x.text()};
      shape.push_back(end[i] == begin[i] ? 0 : (end[i] - begin[i] - 1) / step[i] + 1);
    }
    return {{x.dtype, shape}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// x with `low` and `high` elements of `value` before and after along each axis, and `inner` between any two.
struct Pad {
  static constexpr std::string_view name = "pad";
  AxisValues low, high, inner;
  Number value = 0;

  template <class V>
  void describe(V& v) const {
    v("low", low);
    v("high", high);
    v("inner", inner);
    v("value", value);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const auto& x = inputs[0];
    detail::require_per_axis("low", low, x);
    detail::require_per_axis("high", high, x);
    detail::require_per_axis("inner", inner, x);
    Shape shape;
    for (std::size_t i = 0; i < x.shape.rank(); ++i) {
      if (low[i] < 0 || high[i] < 0 || inner[i] < 0)
        throw BuildError{"asked to pad axis " + std::to_string(i) + " by " + std::to_string(low[i]) + " and " +
                         std::to_string(high[i]) + ": padding starts at 0, slice takes elements away"};
      shape.push_back(low[i] + x.shape[i] + (x.shape[i] > 0 ? (x.shape[i] - 1) * inner[i] : 0) + high[i]);
    }
    return {{x.dtype, shape}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    Slice slice{low, {}, inner};
    for (std::size_t i = 0; i < low.size(); ++i) {
      slice.end.push_back(at.upstream[0].shape()[i] - high[i]);
      ++slice.step[i];
    }
    return {compute(at.graph, std::move(slice), {at.upstream[0]}, at.where)};
  }
};

inline std::vector<AnyTensor> Slice::gradient(const GradientContext& at) const {
  const Shape& x = at.inputs[0].shape();
  const Shape& y = at.upstream[0].shape();
  if (y.elements() == 0) return {fill(at.graph, at.inputs[0].type(), 0, at.where)};
  Pad pad{begin, {}, step, 0};
  for (std::size_t i = 0; i < begin.size(); ++i) {
    pad.high.push_back(x[i] - begin[i] - ((y[i] - 1) * step[i] + 1));
    --pad.inner[i];
  }
  return {compute(at.graph, std::move(pad), {at.upstream[0]}, at.where)};
}

// The inputs one after the other along an axis; all other extents are equal.
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

// The axes in another order: axis i of the result is axis permutation[i] of x.
template <Element T>
Tensor<T> transpose(Tensor<T> x, AxisValues permutation, std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(x.graph(), Transpose{std::move(permutation)}, {x}, where)};
}

// Elements begin, begin + step, ... before end along each axis; steps of 1 where none are given.
template <Element T>
Tensor<T> slice(Tensor<T> x, AxisValues begin, AxisValues end, AxisValues step = {},
                std::source_location where = std::source_location::current()) {
  if (step.empty()) step.assign(x.shape().rank(), 1);
  return Tensor<T>{compute(x.graph(), Slice{std::move(begin), std::move(end), std::move(step)}, {x}, where)};
}

// Elements begin to before end of one axis (-1: the last), and all of the other axes: x[:, begin:end]. Below 0 both count from the end
// of the axis, which is where the slice ends unless told. Throws BuildError where they are not there.
//   auto inputs = rp::slice_axis(tokens, 1, 0, -1), targets = rp::slice_axis(tokens, 1, 1);   // [n, t + 1] -> [n, t], [n, t]
template <Element T>
Tensor<T> slice_axis(Tensor<T> x, std::int64_t axis, std::int64_t begin, std::optional<std::int64_t> end = {},
                     std::source_location where = std::source_location::current()) {
  Slice op = detail::at_line("slice_axis", where, [&] {
    const Shape& shape = x.shape();
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, shape.rank()));
    const std::int64_t extent = shape[axis], asked_end = end.value_or(extent);
    const auto from_front = [&](std::int64_t i) { return i < 0 ? i + extent : i; };
    const std::int64_t first = from_front(begin), last = from_front(asked_end);
    if (first < 0 || last < first || last > extent)
      throw BuildError{"asked for elements " + std::to_string(begin) + " to " + std::to_string(asked_end) + " of axis " + std::to_string(axis) +
                       " of " + x.any().type().text() + ": the first must be there, and the end not lie before it or beyond " +
                       std::to_string(extent)};
    Slice slice{AxisValues(shape.rank(), 0), AxisValues(shape.begin(), shape.end()), AxisValues(shape.rank(), 1)};
    slice.begin[at] = first;
    slice.end[at] = last;
    return slice;
  });
  return Tensor<T>{compute(x.graph(), std::move(op), {x}, where)};
}

// n equal parts along an axis (-1: the last). Throws BuildError where its extent is no multiple of n.
//   const auto [q, k, v] = rp::split<3>(qkv);   // [.., 3 d] -> three of [.., d]
template <std::size_t n, Element T>
  requires(n > 0)
std::array<Tensor<T>, n> split(Tensor<T> x, std::int64_t axis = -1, std::source_location where = std::source_location::current()) {
  const auto extent = detail::at_line("split", where, [&] {
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, x.shape().rank()));
    if (x.shape()[axis] % static_cast<std::int64_t>(n) != 0)
      throw BuildError{"asked for " + std::to_string(n) + " equal parts of axis " + std::to_string(at) + " of " + x.any().type().text() +
                       ": take a number that divides its extent, or parts of any extent with rp::slice_axis"};
    return x.shape()[axis] / static_cast<std::int64_t>(n);
  });
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<Tensor<T>, n>{
        slice_axis(x, axis, static_cast<std::int64_t>(i) * extent, static_cast<std::int64_t>(i + 1) * extent, where)...};
  }(std::make_index_sequence<n>{});
}

// x with `low` and `high` elements of `value` before and after along each axis.
template <Element T>
Tensor<T> pad(Tensor<T> x, AxisValues low, AxisValues high, T value = T{},
              std::source_location where = std::source_location::current()) {
  AxisValues inner(x.shape().rank(), 0);
  return Tensor<T>{compute(
      x.graph(), Pad{std::move(low), std::move(high), std::move(inner), value}, {x}, where)};
}

// The tensors one after the other along an axis (-1: the last).
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

// The same elements in row-major order with other extents. One of them may be -1: what is left for it.
template <Element T>
Tensor<T> reshape(Tensor<T> x, std::vector<std::int64_t> extents,
                  std::source_location where = std::source_location::current()) {
  const Shape shape = detail::at_line("reshape", where, [&] {
    std::int64_t known = 1, open = 0;
    for (const auto extent : extents) extent == -1 ? ++open : known *= extent;
    if (open > 1 || (open == 1 && (known == 0 || x.shape().elements() % known != 0)))
      throw BuildError{"the extent -1 cannot be found for " + x.any().type().text() + ": the others multiply to " +
                       std::to_string(known) + ", and only one may be -1"};
    for (auto& extent : extents)
      if (extent == -1) extent = x.shape().elements() / known;
    return Shape{extents};
  });
  return Tensor<T>{replicator::reshape(x.any(), shape, Location{where})};
}

// [N, ...] -> [N, the rest]
template <Element T>
Tensor<T> flatten(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::at_line("flatten", where, [&] {
    (void)detail::require_axis(0, x.shape().rank());
    std::int64_t rest = 1;
    for (std::size_t axis = 1; axis < x.shape().rank(); ++axis) rest *= x.shape()[axis];
    return Tensor<T>{replicator::reshape(x.any(), Shape{x.shape()[0], rest}, Location{where})};
  });
}

// A new axis of extent 1 before `axis` of x (-1: after the last).
template <Element T>
Tensor<T> expand_dims(Tensor<T> x, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return detail::at_line("expand_dims", where, [&] {
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, x.shape().rank() + 1));
    Shape shape;
    for (std::size_t i = 0; i <= x.shape().rank(); ++i) shape.push_back(i == at ? 1 : x.shape()[i < at ? i : i - 1]);
    return Tensor<T>{replicator::reshape(x.any(), shape, Location{where})};
  });
}

// The tensors, all of one shape, one after the other along a new axis before `axis` of them (-1: after the last).
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
  return concat(std::span<const Tensor<T>>{rows}, axis, where);
}
template <Element T>
Tensor<T> stack(std::initializer_list<Tensor<T>> parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return stack(std::span<const Tensor<T>>{parts.begin(), parts.size()}, axis, where);
}

// Without an axis of extent 1 (-1: the last). Throws BuildError where it is longer.
template <Element T>
Tensor<T> squeeze(Tensor<T> x, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return detail::at_line("squeeze", where, [&] {
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, x.shape().rank()));
    if (x.shape()[at] != 1)
      throw BuildError{"axis " + std::to_string(axis) + " of " + x.any().type().text() + " is not of extent 1"};
    Shape shape;
    for (std::size_t i = 0; i < x.shape().rank(); ++i)
      if (i != at) shape.push_back(x.shape()[i]);
    return Tensor<T>{replicator::reshape(x.any(), shape, Location{where})};
  });
}

// x repeated along axes of extent 1, or new ones in front. Throws BuildError where it does not fit.
template <Element T>
Tensor<T> broadcast_to(Tensor<T> x, const Shape& shape, std::source_location where = std::source_location::current()) {
  Expression e;
  e.compute = compute_type(dtype_of<T>);
  e.inputs = 1;
  e.outputs = {e.input(0)};
  const AnyTensor any = x;
  return Tensor<T>{map_node(x.graph(), std::move(e), {&any, 1}, shape, dtype_of<T>, where)};
}

// The same value; no gradient flows back through it.
template <Element T>
Tensor<T> stop_gradient(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(x.graph(), StopGradient{}, {x}, where)};
}

}  // namespace replicator
