// SPDX-License-Identifier: Apache-2.0
// all_to_all along any axes. The placeholder only exchanges parts of axis 0; changes of shape around it do the rest.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <replicator/ops/movement/axis.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/resolve/collective_calls.hpp>

namespace replicator {

namespace detail {

// Moves axis `from` to position `to`.
inline AnyTensor move_axis(AnyTensor x, std::size_t from, std::size_t to, Location where) {
  if (from == to) return x;
  AxisValues permutation;
  for (std::size_t axis = 0; axis < x.shape().rank(); ++axis)
    if (axis != from) permutation.push_back(static_cast<std::int64_t>(axis));
  permutation.insert(permutation.begin() + static_cast<std::ptrdiff_t>(to), static_cast<std::int64_t>(from));
  return compute(x.graph(), Transpose{std::move(permutation)}, {x}, where);
}

// Splits axis `axis` in two: the parts, and the extent within each.
inline AnyTensor split_axis(AnyTensor x, std::size_t axis, std::int64_t parts, Location where) {
  Shape shape;
  for (std::size_t i = 0; i < x.shape().rank(); ++i) {
    if (i == axis) shape.push_back(parts);
    shape.push_back(i == axis ? x.shape()[i] / parts : x.shape()[i]);
  }
  return reshape(x, shape, where);
}
// Joins axes `axis` and `axis + 1`.
inline AnyTensor join_axes(AnyTensor x, std::size_t axis, Location where) {
  Shape shape;
  for (std::size_t i = 0; i < x.shape().rank(); ++i)
    if (i != axis + 1) shape.push_back(i == axis ? x.shape()[i] * x.shape()[i + 1] : x.shape()[i]);
  return reshape(x, shape, where);
}

}  // namespace detail

// Cuts each replica's tensor along axis `split` into one part for each replica, and sends part r to replica r. A
// replica joins the parts it receives along axis `join`, in the order of the replicas. So the extent of `split` is
// divided by the number of replicas, and that of `join` is multiplied by it. Axis -1 is the last. The gradient is the
// reverse exchange.
// Throws BuildError if an axis does not exist, or if the number of replicas (members of a group) does not divide the
// extent.
template <Element T>
Tensor<T> all_to_all(Tensor<T> x, std::int64_t split = 0, std::int64_t join = 0, const CollectiveOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  const detail::Placeholder exchange{detail::CollectiveKind::all_to_all, Reduction::sum, 0, false, options.group};
  const auto axis = [&](std::int64_t given) {
    return static_cast<std::size_t>(detail::at_line("all_to_all", where, [&] { return detail::require_axis(given, x.shape().rank()); }));
  };
  const std::size_t from = axis(split), to = axis(join);
  if (from == 0 && to == 0) return Tensor<T>{detail::placeholder_node(x, exchange, where, options.label)};
  const std::string what = detail::call_text(x.graph().replica(), "all_to_all", where);
  detail::require_groups(exchange, x.graph().replicas(), what);
  const int members = detail::members_of(exchange, x.graph());
  if (x.shape()[from] % members != 0)
    throw BuildError{what + ": axis " + std::to_string(from) + " is split over " + std::to_string(members) + " replicas, found the shape " +
                     x.shape().text() + ": make it a multiple"};
  AnyTensor parts = detail::move_axis(detail::split_axis(x, from, members, where), from, 0, where);
  parts = detail::placeholder_node(parts, exchange, where, options.label);  // [source, ...]
  return Tensor<T>{detail::join_axes(detail::move_axis(parts, 0, to, where), to, where)};
}

}  // namespace replicator
