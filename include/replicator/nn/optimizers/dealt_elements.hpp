// SPDX-License-Identifier: Apache-2.0
// A tensor cut over the replicas: its elements in a row, zeros behind them up to a multiple of the replicas, replica i has the i-th
// part. R: replicas, n: elements, m: elements of a part, n / R rounded up.
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
inline AnyTensor in_parts(AnyTensor x, Location where) {
  const auto n = x.shape().elements(), replicas = std::int64_t{x.graph().replicas()};
  const auto all = replicas * elements_of_part(x.shape(), x.graph().replicas());
  const AnyTensor flat = reshape(x, Shape{n}, where);
  return all == n ? flat : compute(x.graph(), Pad{{0}, {all - n}, {0}, 0}, {flat}, where);
}

// Of a value that all replicas have: this replica's part, [m]. The graphs of all replicas stay equal: who it is, is read in the step.
inline AnyTensor own_part(AnyTensor x, Location where) {
  const int replicas = x.graph().replicas();
  const AnyTensor rows = reshape(in_parts(x, where), Shape{replicas, elements_of_part(x.shape(), replicas)}, where);
  return compute(x.graph(), Gather{0}, {rows, replica_id(x.graph(), where)}, where);
}

// [m] of each replica -> the whole, of this shape, on every one.
inline AnyTensor joined(AnyTensor part, const Shape& shape, std::string label, Location where) {
  const AnyTensor all = replicator::detail::placeholder_node(part, {replicator::detail::CollectiveKind::all_gather, Reduction::sum, 0, false, {}}, where, std::move(label));
  const auto n = shape.elements();
  return reshape(all.shape()[0] == n ? all : compute(all.graph(), Slice{{0}, {n}, {1}}, {all}, where), shape, where);
}

}  // namespace replicator::nn::detail
