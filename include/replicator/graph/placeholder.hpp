// SPDX-License-Identifier: Apache-2.0
// Adding placeholders of collectives to a graph, and their gradients.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>

namespace replicator {

namespace detail {

// all_gather joins along axis 0 (scalars become a vector); reduce_scatter splits along it.
inline Shape collective_shape(const Placeholder& p, const Shape& input, int replicas, const std::string& where) {
  Shape shape = input;
  if (p.kind == CollectiveKind::all_gather) {
    if (input.rank() == 0) return Shape{replicas};
    shape[0] *= replicas;
  }
  if (p.kind == CollectiveKind::reduce_scatter) {
    if (input.rank() == 0 || input[0] % replicas != 0)
      throw BuildError{where + ": the first extent is split over " + std::to_string(replicas) + " replicas, found the shape " + input.text() +
                       ": make it a multiple"};
    shape[0] /= replicas;
  }
  return shape;
}

}  // namespace detail

// Throws BuildError for integers averaged, a root that does not exist, or an extent that cannot be split.
inline AnyTensor placeholder_node(AnyTensor x, Placeholder placeholder, Location where, std::string label = {}) {
  Graph& graph = x.graph();
  const std::string what = "replica " + std::to_string(graph.replica()) + ": " + std::string{name_of(placeholder.kind)} + " at " + where.text();
  const bool reduces = placeholder.kind == CollectiveKind::all_reduce || placeholder.kind == CollectiveKind::reduce_scatter;
  if (reduces && (x.dtype() == DType::boolean || (placeholder.reduction == Reduction::mean && !is_floating(x.dtype()))))
    throw BuildError{what + ": cannot take the " + std::string{name_of(placeholder.reduction)} + " of " + x.type().text() +
                     ": cast it with rp::cast"};
  if (placeholder.root < 0 || placeholder.root >= graph.replicas())
    throw BuildError{what + ": the root " + std::to_string(placeholder.root) + " is not one of the " + std::to_string(graph.replicas()) +
                     " replicas"};
  const TensorType type{x.dtype(), detail::collective_shape(placeholder, x.shape(), graph.replicas(), what)};
  placeholder.ordinal = graph.next_collective();
  return graph.tensor(graph.add({placeholder, {x.value()}, {type}, where, std::move(label)}));
}

// The id of the replica, an int32 scalar.
inline AnyTensor replica_id(Graph& graph, Location where) {
  return graph.tensor(graph.add({Input{Input::Source::replica_id, 0}, {}, {TensorType{DType::int32, {}}}, where, {}}));
}

namespace detail {

// condition ? a : 0, where the condition compares two int32 scalars.
inline AnyTensor where_equal(AnyTensor a, AnyTensor left, double right, Location where) {
  const AnyTensor condition = apply(ScalarOp::equal, left, right, where);
  Expression e;
  e.compute = a.dtype();
  e.inputs = 2;
  e.outputs = {e.apply(ScalarOp::select, e.input(0), e.input(1), e.constant(0))};
  const AnyTensor operands[] = {condition, a};
  return map_node(a.graph(), std::move(e), operands, a.shape(), a.dtype(), where);
}

// The first replica that attains the extremum receives the whole gradient.
inline AnyTensor extremum_gradient(AnyTensor x, AnyTensor y, AnyTensor sum, Location where) {
  Graph& graph = x.graph();
  Expression e;  // x == y ? id : replicas
  e.compute = x.dtype();
  e.inputs = 3;
  e.outputs = {e.apply(ScalarOp::select, e.apply(ScalarOp::equal, e.input(0), e.input(1)), e.input(2), e.constant(graph.replicas()))};
  const AnyTensor id = replica_id(graph, where);
  const AnyTensor candidates_in[] = {x, y, id};
  const AnyTensor candidate = map_node(graph, std::move(e), candidates_in, x.shape(), DType::int32, where);
  const AnyTensor first = placeholder_node(candidate, {CollectiveKind::all_reduce, Reduction::min}, where);
  Expression pick;  // first == id ? sum : 0
  pick.compute = x.dtype();
  pick.inputs = 3;
  pick.outputs = {pick.apply(ScalarOp::select, pick.apply(ScalarOp::equal, pick.input(0), pick.input(1)), pick.input(2), pick.constant(0))};
  const AnyTensor pick_in[] = {first, id, sum};
  return map_node(graph, std::move(pick), pick_in, x.shape(), x.dtype(), where);
}

// The derivative of the sum over all replicas of sum(y * u) with respect to this replica's x.
inline AnyTensor placeholder_gradient(const Placeholder& p, AnyTensor x, AnyTensor y, AnyTensor u, Location where) {
  const Placeholder sum{CollectiveKind::all_reduce, Reduction::sum, 0, p.any_order};
  switch (p.kind) {
    case CollectiveKind::all_reduce:
      if (p.reduction == Reduction::sum || p.reduction == Reduction::mean) return placeholder_node(u, p, where);
      return extremum_gradient(x, y, placeholder_node(u, sum, where), where);
    case CollectiveKind::all_gather:
      return reshape(placeholder_node(u, {CollectiveKind::reduce_scatter, Reduction::sum, 0, p.any_order}, where), x.shape(), where);
    case CollectiveKind::reduce_scatter: {
      if (p.reduction == Reduction::min || p.reduction == Reduction::max)
        throw BuildError{"the gradient of reduce_scatter(" + std::string{name_of(p.reduction)} + ") asked for at " + where.text() +
                         " is not defined here: use all_reduce and a slice"};
      const AnyTensor gathered = placeholder_node(u, {CollectiveKind::all_gather, Reduction::sum, 0, p.any_order}, where);
      return p.reduction == Reduction::sum ? gathered : apply(ScalarOp::divide, gathered, x.graph().replicas(), where);
    }
    case CollectiveKind::broadcast:
      return where_equal(placeholder_node(u, sum, where), replica_id(x.graph(), where), p.root, where);
  }
  return {};
}

}  // namespace detail
}  // namespace replicator
