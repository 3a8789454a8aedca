// SPDX-License-Identifier: Apache-2.0
// Cuts a tensor into equal parts over the replicas. The elements are flattened and padded with zeros to a multiple of
// the replicas; replica i owns part i. R: replicas, n: elements, m: elements of a part, n / R rounded up.
#pragma once

#include <cstdint>

#include <replicator/graph/map.hpp>
#include <replicator/graph/placeholder.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/slice.hpp>

namespace replicator::nn::detail {

inline std::int64_t elements_of_part(const Shape& shape, int replicas) { return (shape.elements() + replicas - 1) / replicas; }

// [..] -> [R m]
template <class = void>
AnyTensor in_parts(AnyTensor x, Location where) {
  const auto n = x.shape().elements(), replicas = std::int64_t{x.graph().replicas()};
  const auto all = replicas * elements_of_part(x.shape(), x.graph().replicas());
  const AnyTensor flat = reshape(x, Shape{n}, where);
  return all == n ? flat : compute(x.graph(), Pad{{0}, {all - n}, {0}, 0}, {flat}, where);
}

// This replica's part [m] of a value that all replicas have. The replica id is read in the step, so the graphs of all
// replicas stay equal.
template <class = void>
AnyTensor own_part(AnyTensor x, Location where) {
  const int replicas = x.graph().replicas();
  const AnyTensor rows = reshape(in_parts(x, where), Shape{replicas, elements_of_part(x.shape(), replicas)}, where);
  return compute(x.graph(), Gather{0}, {rows, replica_id(x.graph(), where)}, where);
}

// Gathers the parts [m] of all replicas into the whole tensor of this shape, on every replica.
template <class = void>
AnyTensor joined(AnyTensor part, const Shape& shape, std::string label, Location where) {
  const AnyTensor all = replicator::detail::placeholder_node(part, {replicator::detail::CollectiveKind::all_gather, Reduction::sum, 0, false, {}}, where, std::move(label));
  const auto n = shape.elements();
  return reshape(all.shape()[0] == n ? all : compute(all.graph(), Slice{{0}, {n}, {1}}, {all}, where), shape, where);
}

}  // namespace replicator::nn::detail
