// SPDX-License-Identifier: Apache-2.0
// slice takes a part of a tensor, split makes equal parts, and pad makes a tensor a part of a larger one. Any dtype.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/movement/axis.hpp>
#include <replicator/ops/movement/parts.hpp>
#include <replicator/ops/movement/reshape.hpp>

namespace replicator {

// Elements begin, begin + step, ... before end along each axis. All steps are 1 where none are given.
template <Element T>
Tensor<T> slice(Tensor<T> x, AxisValues begin, AxisValues end, AxisValues step = {},
                std::source_location where = std::source_location::current()) {
  if (step.empty()) step.assign(x.shape().rank(), 1);
  return Tensor<T>{compute(x.graph(), Slice{std::move(begin), std::move(end), std::move(step)}, {x}, where)};
}

// Elements from begin to before end of one axis (-1: the last), and all of the other axes: x[:, begin:end]. Negative numbers
// count from the end of the axis. By default the slice ends there. Throws BuildError where the elements do not exist.
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
                       " of " + x.any().type().text() + ": the first must exist, and the end must not lie before it or beyond " +
                       std::to_string(extent)};
    Slice slice{AxisValues(shape.rank(), 0), AxisValues(shape.begin(), shape.end()), AxisValues(shape.rank(), 1)};
    slice.begin[at] = first;
    slice.end[at] = last;
    return slice;
  });
  return Tensor<T>{compute(x.graph(), std::move(op), {x}, where)};
}

// Splits an axis (-1: the last) into n equal parts. Throws BuildError where its extent is not a multiple of n.
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
  }
  (std::make_index_sequence<n>{});
}

// Splits an axis (-1: the last) into parts of these extents. Throws BuildError unless they add up to the axis's extent.
//   const auto parts = rp::split(x, {64, 64, 128});   // [.., 256] -> [.., 64], [.., 64], [.., 128]
template <Element T>
std::vector<Tensor<T>> split(Tensor<T> x, const AxisValues& extents, std::int64_t axis = -1, std::source_location where = std::source_location::current()) {
  detail::at_line("split", where, [&] {
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, x.shape().rank()));
    std::int64_t all = 0;
    std::string text;
    for (const std::int64_t extent : extents) {
      text += (text.empty() ? "" : ", ") + std::to_string(extent);
      if (extent < 0) throw BuildError{"asked for parts of the extents " + text + ": an extent cannot be negative"};
      all = Shape::sum(all, extent);
    }
    if (all != x.shape()[axis])
      throw BuildError{"asked for parts of the extents " + text + " of axis " + std::to_string(at) + " of " + x.any().type().text() + ": they must add up to " +
                       std::to_string(x.shape()[axis])};
  });
  std::vector<Tensor<T>> parts;
  std::int64_t begin = 0;
  for (const std::int64_t extent : extents) {
    parts.push_back(slice_axis(x, axis, begin, begin + extent, where));
    begin += extent;
  }
  return parts;
}

// The slices of x along an axis (-1: the last), without that axis. Throws BuildError where x has no such axis.
//   for (const auto frame : rp::unbind(frames)) ...   // [t, n, f] -> t times [n, f]
template <Element T>
std::vector<Tensor<T>> unbind(Tensor<T> x, std::int64_t axis = 0, std::source_location where = std::source_location::current()) {
  const std::int64_t extent = detail::at_line("unbind", where, [&] { return x.shape()[detail::require_axis(axis, x.shape().rank())]; });
  std::vector<Tensor<T>> slices;
  for (std::int64_t i = 0; i < extent; ++i) slices.push_back(squeeze(slice_axis(x, axis, i, i + 1, where), axis, where));
  return slices;
}

// Puts `low` elements of `value` before x along each axis, and `high` behind it.
template <Element T>
Tensor<T> pad(Tensor<T> x, AxisValues low, AxisValues high, T value = T{},
              std::source_location where = std::source_location::current()) {
  AxisValues inner(x.shape().rank(), 0);
  return Tensor<T>{compute(
      x.graph(), Pad{std::move(low), std::move(high), std::move(inner), value}, {x}, where)};
}

}  // namespace replicator
