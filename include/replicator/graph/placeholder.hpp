// SPDX-License-Identifier: Apache-2.0
// Adds the placeholders of collectives to a graph, and their gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>

namespace replicator::detail {

// The result's shape. all_gather joins along axis 0 (scalars become a vector); reduce_scatter and all_to_all split along
// it.
template <class = void>
Shape collective_shape(const Placeholder& p, const Shape& input, int members, const std::string& where) {
  Shape shape = input;
  if (p.kind == CollectiveKind::all_gather) {
    if (input.rank() == 0) return Shape{members};
    shape[0] = Shape::product(shape[0], members);
  }
  if (p.kind == CollectiveKind::reduce_scatter || p.kind == CollectiveKind::all_to_all) {
    if (input.rank() == 0 || input[0] % members != 0)
      throw BuildError{where + ": the first extent is split over " + std::to_string(members) + " replicas, found the shape " + input.text() +
                       ": make it a multiple"};
    if (p.kind == CollectiveKind::reduce_scatter) shape[0] /= members;
  }
  return shape;
}

// Throws BuildError where elements of this type cannot be reduced so.
inline void require_reducible(const TensorType& type, Reduction reduction, const std::string& where) {
  if (const auto fault = reduction_fault(type.dtype, reduction, type.text()); !fault.empty()) throw BuildError{where + ": " + fault};
}

// Throws BuildError where the groups are no partition of the replicas, or have sizes that the collective cannot use.
template <class = void>
void require_groups(const Placeholder& p, int replicas, const std::string& where) {
  const std::string asked = where + ": asked for the groups " + p.groups.text();
  const std::string fault = p.groups.fault(replicas);
  if (!fault.empty())
    throw BuildError{asked + " of " + std::to_string(replicas) + " replicas, but " + fault + ": name every replica once, in ascending order"};
  if (p.groups.equal_sizes()) return;
  if (p.kind != CollectiveKind::all_reduce && p.kind != CollectiveKind::broadcast)
    throw BuildError{asked + ", whose sizes differ, so the results would have different shapes: make all groups equally large"};
  if (p.kind == CollectiveKind::all_reduce && p.reduction == Reduction::mean)
    throw BuildError{asked + ", whose sizes differ, so a mean has no single divisor: take the sum and divide it"};
}

// The number of replicas that take part together: the members of this replica's group.
inline int members_of(const Placeholder& placeholder, const Graph& graph) {
  return placeholder.groups.everybody() ? graph.replicas() : placeholder.groups.size(placeholder.groups.group_of(graph.replica()));
}

// Adds a placeholder and returns its result. Throws BuildError for:
// - a sum of bools, or a mean of bools or integers
// - groups that are no partition of the replicas, or have unsuitable sizes
// - a root that does not exist
// - an extent that cannot be split
template <class = void>
AnyTensor placeholder_node(AnyTensor x, Placeholder placeholder, Location where, std::string label = {}) {
  Graph& graph = x.graph();
  const std::string what = detail::call_text(graph.replica(), name_of(placeholder.kind), where);
  const bool reduces = placeholder.kind == CollectiveKind::all_reduce || placeholder.kind == CollectiveKind::reduce_scatter;
  if (reduces) detail::require_reducible(x.type(), placeholder.reduction, what);
  detail::require_groups(placeholder, graph.replicas(), what);
  if (placeholder.groups.everybody()) placeholder.groups = {};
  for (int group = 0; group < std::max(1, placeholder.groups.count()); ++group) {
    const int members = placeholder.groups.everybody() ? graph.replicas() : placeholder.groups.size(group);
    if (placeholder.root < 0 || placeholder.root >= members)
      throw BuildError{what + ": the root " + std::to_string(placeholder.root) + " is not one of the " + std::to_string(members) + " replicas" +
                       (placeholder.groups.everybody() ? "" : " of a group")};
  }
  const TensorType type{x.dtype(), detail::collective_shape(placeholder, x.shape(), members_of(placeholder, graph), what)};
  placeholder.ordinal = graph.next_collective();
  return graph.tensor(graph.add({std::move(placeholder), {x.value()}, {type}, where, std::move(label)}));
}

// The replica's id, an int32 scalar.
inline AnyTensor replica_id(Graph& graph, Location where) {
  return graph.tensor(graph.add({Input{Input::Source::replica_id, 0}, {}, {TensorType{DType::int32, {}}}, where, {}}));
}

// `a` at the root of each group, 0 elsewhere. The id is compared while the step runs, so the graphs of all replicas stay
// equal.
template <class = void>
AnyTensor at_root(AnyTensor a, const Placeholder& p, Location where) {
  const AnyTensor id = replica_id(a.graph(), where);
  Expression is_root;  // id == root || ...
  is_root.compute = DType::int32;
  is_root.inputs = 1;
  const Groups groups = p.groups.over(a.graph().replicas());
  std::uint16_t any = 0;
  for (int group = 0; group < groups.count(); ++group) {
    const auto root = is_root.constant(groups.members(group)[static_cast<std::size_t>(p.root)]);
    const auto equal = is_root.apply(ScalarOp::equal, is_root.input(0), root);
    any = group == 0 ? equal : is_root.apply(ScalarOp::logical_or, any, equal);
  }
  is_root.outputs = {any};
  const AnyTensor condition = map_node(a.graph(), std::move(is_root), {&id, 1}, Shape{}, DType::boolean, where);
  Expression e;
  e.compute = compute_type(a.dtype());
  e.inputs = 2;
  e.outputs = {e.apply(ScalarOp::select, e.input(0), e.input(1), e.constant(0))};
  const AnyTensor operands[] = {condition, a};
  return map_node(a.graph(), std::move(e), operands, a.shape(), a.dtype(), where);
}

// The gradient of an extremum y: the first replica of its group whose x attains y receives `sum`, the whole gradient; the
// others receive 0. All arguments have one shape.
template <class = void>
AnyTensor extremum_gradient(const Groups& groups, AnyTensor x, AnyTensor y, AnyTensor sum, Location where) {
  Graph& graph = x.graph();
  Expression e;  // x == y ? id : replicas
  e.compute = compute_type(x.dtype());
  e.inputs = 3;
  e.outputs = {e.apply(ScalarOp::select, e.apply(ScalarOp::equal, e.input(0), e.input(1)), e.input(2), e.constant(graph.replicas()))};
  const AnyTensor id = replica_id(graph, where);
  const AnyTensor candidates_in[] = {x, y, id};
  const AnyTensor candidate = map_node(graph, std::move(e), candidates_in, x.shape(), DType::int32, where);
  const AnyTensor first = placeholder_node(candidate, {CollectiveKind::all_reduce, Reduction::min, 0, false, groups}, where);
  Expression pick;  // first == id ? sum : 0
  pick.compute = compute_type(x.dtype());
  pick.inputs = 3;
  pick.outputs = {pick.apply(ScalarOp::select, pick.apply(ScalarOp::equal, pick.input(0), pick.input(1)), pick.input(2), pick.constant(0))};
  const AnyTensor pick_in[] = {first, id, sum};
  return map_node(graph, std::move(pick), pick_in, x.shape(), x.dtype(), where);
}

// The derivative of sum(y * u), summed over all replicas, with respect to this replica's x. `label`: of the collective.
template <class = void>
AnyTensor placeholder_gradient(Placeholder p, AnyTensor x, AnyTensor y, AnyTensor u, Location where, const std::string& label) {
  const std::string own = label.empty() ? label : label + "/gradient";
  const Placeholder sum{CollectiveKind::all_reduce, Reduction::sum, 0, p.any_order, p.groups};
  switch (p.kind) {
    case CollectiveKind::all_reduce:
      if (p.reduction == Reduction::sum || p.reduction == Reduction::mean) return placeholder_node(u, p, where, own);
      return extremum_gradient(p.groups, x, y, placeholder_node(u, sum, where, own), where);
    case CollectiveKind::all_gather:
      return reshape(placeholder_node(u, {CollectiveKind::reduce_scatter, Reduction::sum, 0, p.any_order, p.groups}, where, own), x.shape(), where);
    case CollectiveKind::reduce_scatter: {
      const Placeholder gather{CollectiveKind::all_gather, Reduction::sum, 0, p.any_order, p.groups};
      const AnyTensor gathered = placeholder_node(u, gather, where, own);
      if (p.reduction == Reduction::sum) return gathered;
      if (p.reduction == Reduction::mean) return apply(ScalarOp::divide, gathered, members_of(p, x.graph()), where);
      return extremum_gradient(p.groups, x, placeholder_node(y, gather, where), gathered, where);
    }
    case CollectiveKind::broadcast:
      return at_root(placeholder_node(u, sum, where, own), p, where);
    case CollectiveKind::all_to_all:  // part i of replica j was part j of replica i
      return placeholder_node(u, p, where, own);
  }
  return {};
}

}  // namespace replicator::detail
