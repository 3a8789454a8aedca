// SPDX-License-Identifier: Apache-2.0
// What a step function calls to communicate. Each call leaves a placeholder in the replica's graph; every replica must
// leave the same ones in the same order. Sums are taken in a fixed tree over the replicas, so that the bits do not
// depend on where the replicas are; `any_order` gives that up for speed.
#pragma once

#include <source_location>
#include <string>
#include <tuple>

#include <replicator/graph/placeholder.hpp>
#include <replicator/graph/tensor.hpp>

namespace replicator {

struct CollectiveOptions {
  bool any_order = false;
  std::string label = {};  // a name for messages and explain()
};

// The sum (mean, min, max) over the replicas, on every replica. Same shape. Throws BuildError for bool, and for the mean of integers.
template <Element T>
Tensor<T> all_reduce(Tensor<T> x, Reduction reduction, const CollectiveOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  return Tensor<T>{placeholder_node(x, {CollectiveKind::all_reduce, reduction, 0, options.any_order}, where, options.label)};
}

// The values of all replicas joined along axis 0, in the order of the replicas: [n, ...] -> [replicas * n, ...]; a scalar gives [replicas].
template <Element T>
Tensor<T> all_gather(Tensor<T> x, const CollectiveOptions& options = {}, std::source_location where = std::source_location::current()) {
  return Tensor<T>{placeholder_node(x, {CollectiveKind::all_gather, Reduction::sum, 0, false}, where, options.label)};
}

// Replica i's part of the reduction, split along axis 0: [replicas * n, ...] -> [n, ...]. Throws BuildError where it cannot be split.
template <Element T>
Tensor<T> reduce_scatter(Tensor<T> x, Reduction reduction, const CollectiveOptions& options = {},
                         std::source_location where = std::source_location::current()) {
  return Tensor<T>{placeholder_node(x, {CollectiveKind::reduce_scatter, reduction, 0, options.any_order}, where, options.label)};
}

// The root replica's value, on every replica.
template <Element T>
Tensor<T> broadcast(Tensor<T> x, int root, const CollectiveOptions& options = {}, std::source_location where = std::source_location::current()) {
  return Tensor<T>{placeholder_node(x, {CollectiveKind::broadcast, Reduction::sum, root, false}, where, options.label)};
}

// A tuple of tensors, one collective for each; small ones are merged into buckets by resolution.
template <class... T>
std::tuple<Tensor<T>...> all_reduce(const std::tuple<Tensor<T>...>& x, Reduction reduction, const CollectiveOptions& options = {},
                                    std::source_location where = std::source_location::current()) {
  return std::apply([&](const auto&... each) { return std::tuple{all_reduce(each, reduction, options, where)...}; }, x);
}
template <class... T>
std::tuple<Tensor<T>...> all_gather(const std::tuple<Tensor<T>...>& x, const CollectiveOptions& options = {},
                                    std::source_location where = std::source_location::current()) {
  return std::apply([&](const auto&... each) { return std::tuple{all_gather(each, options, where)...}; }, x);
}
template <class... T>
std::tuple<Tensor<T>...> broadcast(const std::tuple<Tensor<T>...>& x, int root, const CollectiveOptions& options = {},
                                   std::source_location where = std::source_location::current()) {
  return std::apply([&](const auto&... each) { return std::tuple{broadcast(each, root, options, where)...}; }, x);
}

}  // namespace replicator
