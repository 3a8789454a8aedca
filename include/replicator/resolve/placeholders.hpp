// SPDX-License-Identifier: Apache-2.0
// What a step function calls to communicate. Each call leaves a placeholder in the replica's graph; every replica must
// leave the same ones in the same order. Sums are taken in a fixed tree over the replicas, so that the bits do not
// depend on where the replicas are; `any_order` gives that up for speed.
#pragma once

#include <source_location>
#include <string>

#include <replicator/core/groups.hpp>
#include <replicator/graph/placeholder.hpp>
#include <replicator/graph/tensor.hpp>

namespace replicator {

struct CollectiveOptions {
  bool any_order = false;  // allows other orders of additions where that saves time: so far in an all_reduce over all replicas
  std::string label = {};  // a name for messages and explain()
  // Inside which groups of replicas it happens: {{0, 1}, {2, 3}}, group_rows(R, columns), group_columns(R, columns). The same
  // partition on every replica, in which each replica is in one group; by default all replicas are one. What is said of
  // replicas below then holds of the members of the replica's group, in ascending order: `root` is a position in the group,
  // and blocks are counted and ordered by members. all_gather, reduce_scatter, all_to_all, map_reduce, map_gather and a mean need groups of one size.
  // A group's result varies over the replicas, so it cannot be assigned to a mirrored variable.
  Groups group = {};
};

// The sum (mean, min, max) over the replicas, on every replica. Same shape. Sums of integers wrap: of uint8 beyond 255. A minimum or
// maximum of bool is a logical and, or; where one of them is a NaN, the result is. The gradient of an extremum goes to the first
// replica that attains it. Throws BuildError for the sum of bool and the mean of bool and of integers.
template <Element T>
Tensor<T> all_reduce(Tensor<T> x, Reduction reduction, const CollectiveOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::placeholder_node(x, {detail::CollectiveKind::all_reduce, reduction, 0, options.any_order, options.group}, where, options.label)};
}

// The values of all replicas joined along axis 0, in the order of the replicas: [n, ...] -> [replicas * n, ...]; a scalar gives [replicas].
template <Element T>
Tensor<T> all_gather(Tensor<T> x, const CollectiveOptions& options = {}, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::placeholder_node(x, {detail::CollectiveKind::all_gather, Reduction::sum, 0, false, options.group}, where, options.label)};
}

// Replica i's part of the reduction, split along axis 0: [replicas * n, ...] -> [n, ...]; else as all_reduce. Throws BuildError where
// it cannot be split, and as all_reduce does.
template <Element T>
Tensor<T> reduce_scatter(Tensor<T> x, Reduction reduction, const CollectiveOptions& options = {},
                         std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::placeholder_node(x, {detail::CollectiveKind::reduce_scatter, reduction, 0, options.any_order, options.group}, where, options.label)};
}

// The root replica's value, on every replica. Throws BuildError where there is no such replica.
template <Element T>
Tensor<T> broadcast(Tensor<T> x, int root, const CollectiveOptions& options = {}, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::placeholder_node(x, {detail::CollectiveKind::broadcast, Reduction::sum, root, false, options.group}, where, options.label)};
}

}  // namespace replicator
