// SPDX-License-Identifier: Apache-2.0
// The collectives of a step function. Each call leaves a placeholder in the replica's graph; every replica must leave
// the same ones in the same order. Sums follow a fixed tree over the replicas, so the bits do not depend on the
// placement. `any_order` gives that up for speed.
#pragma once

#include <source_location>
#include <string>

#include <replicator/core/groups.hpp>
#include <replicator/graph/placeholder.hpp>
#include <replicator/graph/tensor.hpp>

namespace replicator {

struct Axes;  // of ops/reduce.hpp

namespace detail {
template <class T>
constexpr void refuse_other_reduction() {
  static_assert(!Element<T>, "replicator: the reduction over replicas is rp::Reduction::sum, mean, min or max; rp::sum and the like reduce the axes of a tensor");
}
template <class T>
constexpr void refuse_no_reduction() {
  static_assert(!Element<T>, "replicator: a reduction over replicas needs its kind: rp::all_reduce(x, rp::Reduction::sum), or mean, min or max");
}
}  // namespace detail

struct CollectiveOptions {
  bool any_order = false;  // allows other orders of additions if that is faster; only an all_reduce over all replicas uses it
  std::string label = {};  // a name for messages and explain()
  // The groups of replicas: {{0, 1}, {2, 3}}, group_rows(R, columns) or group_columns(R, columns). By default all
  // replicas are one group. The collective happens inside each group. Every replica must give the same partition.
  // With groups, the word "replicas" in the comments below means the members of a group, in ascending order. `root` counts
  // them from 0, and each of them has one block. Groups of one size are needed for all_gather,
  // reduce_scatter, all_to_all, map_reduce, map_gather and for a mean. The result of a group varies over the replicas,
  // so it cannot be assigned to a mirrored variable.
  Groups group = {};
};

// The sum (mean, min, max) over the replicas, on every replica. Same shape. Integer sums wrap: uint8 beyond 255. The
// minimum of bool is a logical and, the maximum a logical or. A minimum or maximum with a NaN is NaN. The gradient of
// an extremum goes to the first replica that attains it.
// Throws BuildError for the sum of bool and the mean of bool and of integers.
template <Element T>
Tensor<T> all_reduce(Tensor<T> x, Reduction reduction, const CollectiveOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::placeholder_node(x, {detail::CollectiveKind::all_reduce, reduction, 0, options.any_order, options.group}, where, options.label)};
}

// Joins the values of all replicas along axis 0, in the order of the replicas: [n, ...] -> [replicas * n, ...]. A
// scalar gives [replicas].
template <Element T>
Tensor<T> all_gather(Tensor<T> x, const CollectiveOptions& options = {}, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::placeholder_node(x, {detail::CollectiveKind::all_gather, Reduction::sum, 0, false, options.group}, where, options.label)};
}

// The reduction over the replicas, split along axis 0: replica i gets part i, [replicas * n, ...] -> [n, ...].
// Otherwise like all_reduce.
// Throws BuildError if axis 0 cannot be split, and for the same reasons as all_reduce.
template <Element T>
Tensor<T> reduce_scatter(Tensor<T> x, Reduction reduction, const CollectiveOptions& options = {},
                         std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::placeholder_node(x, {detail::CollectiveKind::reduce_scatter, reduction, 0, options.any_order, options.group}, where, options.label)};
}

// Refuses a call without a reduction, with the name of one, or with rp::sum and the like.
#define REPLICATOR_REFUSE(function)                                                                                              \
  template <Element T>                                                                                                           \
  Tensor<T> function(Tensor<T> x) { return detail::refuse_no_reduction<T>(), x; }                                                \
  template <Element T>                                                                                                           \
  Tensor<T> function(Tensor<T> x, const char*, const CollectiveOptions& = {}) { return detail::refuse_other_reduction<T>(), x; } \
  template <Element T>                                                                                                           \
  Tensor<T> function(Tensor<T> x, Tensor<T> (*)(Tensor<T>, const Axes&, std::source_location), const CollectiveOptions& = {}) {  \
    return detail::refuse_other_reduction<T>(), x;                                                                               \
  }
REPLICATOR_REFUSE(all_reduce)
REPLICATOR_REFUSE(reduce_scatter)
#undef REPLICATOR_REFUSE

// The root replica's value, on every replica. Throws BuildError if there is no such replica.
template <Element T>
Tensor<T> broadcast(Tensor<T> x, int root, const CollectiveOptions& options = {}, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::placeholder_node(x, {detail::CollectiveKind::broadcast, Reduction::sum, root, false, options.group}, where, options.label)};
}

}  // namespace replicator
