// SPDX-License-Identifier: Apache-2.0
// Distributes work that all replicas need: each replica runs a share of a list of thunks. A thunk is a function without
// arguments that builds a tensor.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/collectives/replica_blocks.hpp>
#include <replicator/collectives/tree.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/resolve/collective_calls.hpp>

namespace replicator {

namespace detail {

template <class Thunks>
using ThunkTensor = std::remove_cvref_t<decltype(std::declval<const Thunks&>()[std::size_t{}]())>;

// Satisfied if thunks[i]() is a tensor for every i < thunks.size().
template <class Thunks>
concept TensorThunks = requires(const Thunks& thunks) {
  { thunks.size() } -> std::convertible_to<std::size_t>;
  typename ThunkTensor<Thunks>::element_type;
  requires std::convertible_to<ThunkTensor<Thunks>, Tensor<typename ThunkTensor<Thunks>::element_type>>;
};

// The results of this replica's thunks.
struct MappedThunks {
  std::string where;  // "replica 1: map_gather at train.cpp:31"
  int count;          // the number of all thunks
  int members;        // the number of replicas that share them
  TensorType type;    // of each result
  std::vector<AnyTensor> own;
  AnyTensor first;  // the result of thunk 0, if the replica has no thunk of its own
};

// Runs this replica's thunks.
template <class Thunks>
MappedThunks run_thunks(Graph& graph, const Thunks& thunks, std::string_view name, const CollectiveOptions& options, Location where) {
  MappedThunks result{detail::call_text(graph.replica(), name, where),
                      static_cast<int>(thunks.size()),
                      graph.replicas(),
                      {},
                      {},
                      {}};
  if (result.count == 0) throw BuildError{result.where + ": found no thunks: give at least one"};
  require_groups({detail::CollectiveKind::all_gather, Reduction::sum, 0, false, options.group}, graph.replicas(), result.where);
  const Groups groups = options.group.over(graph.replicas());
  result.members = groups.size(0);
  const int position = groups.position(graph.replica());
  const int begin = detail::collectives::block_begin(result.count, result.members, position);
  const int end = detail::collectives::block_begin(result.count, result.members, position + 1);
  for (int i = begin; i < end; ++i) {
    const AnyTensor tensor = thunks[static_cast<std::size_t>(i)]();
    if (!result.own.empty() && tensor.type() != result.type)
      throw BuildError{result.where + ": thunk " + std::to_string(i) + " gives " + tensor.type().text() + ", thunk " + std::to_string(i - 1) + " " +
                       result.type.text() + ": all thunks must give equal shapes and dtypes"};
    result.type = tensor.type();
    result.own.push_back(tensor);
  }
  if (!result.own.empty()) return result;
  result.first = thunks[0]();
  result.type = result.first.type();
  return result;
}

// The smaller (larger) of each pair of elements. A NaN wins, as in all_reduce.
template <class = void>
AnyTensor extremum(detail::ScalarOp op, AnyTensor a, AnyTensor b, Location where) {
  detail::Expression e;  // b is a NaN ? b : op(a, b)
  e.compute = compute_type(a.dtype());
  e.inputs = 2;
  const auto left = e.input(0), right = e.input(1);
  e.outputs = {e.apply(detail::ScalarOp::select, e.apply(detail::ScalarOp::equal, right, right), e.apply(op, left, right), right)};
  const AnyTensor operands[] = {a, b};
  return map_node(a.graph(), std::move(e), operands, a.dtype(), where);
}

// Reduces the replica's own results in the same tree T as the collectives.
template <class = void>
AnyTensor fold_thunks(const std::vector<AnyTensor>& results, detail::collectives::TreeNode node, Reduction reduction, Location where) {
  if (node.leaf()) return results[static_cast<std::size_t>(node.begin)];
  const AnyTensor left = fold_thunks(results, node.left(), reduction, where), right = fold_thunks(results, node.right(), reduction, where);
  if (reduction == Reduction::min) return extremum(detail::ScalarOp::minimum, left, right, where);
  if (reduction == Reduction::max) return extremum(detail::ScalarOp::maximum, left, right, where);
  return apply(detail::ScalarOp::add, {left, right}, where);
}

// Zeros that depend on x, so that a gradient asks for the same collectives as on replicas that use x. The optimiser
// cannot remove the dependence: it does not know that no id is -1.
template <class = void>
AnyTensor nothing_of(AnyTensor x, Location where) {
  detail::Expression e;  // id == -1 ? x : 0
  e.compute = compute_type(x.dtype());
  e.inputs = 2;
  e.outputs = {e.apply(detail::ScalarOp::select, e.apply(detail::ScalarOp::equal, e.input(0), e.constant(-1)), e.input(1), e.constant(0))};
  const AnyTensor operands[] = {replica_id(x.graph(), where), x};
  return map_node(x.graph(), std::move(e), operands, x.shape(), x.dtype(), where);
}

template <class = void>
AnyTensor join_rows(const std::vector<AnyTensor>& rows, Location where) {
  if (rows.size() == 1) return rows[0];
  return rows[0].graph().tensor(add_compute(rows[0].graph(), Concat{0}, rows, where));
}
// Rows [begin, end) of [n, w, e], and of each row the first `width` entries.
template <class = void>
AnyTensor cut_rows(AnyTensor x, std::int64_t begin, std::int64_t end, std::int64_t width, Location where) {
  const std::int64_t e = x.shape()[2];
  const AnyTensor cut = compute(x.graph(), Slice{{begin, 0, 0}, {end, width, e}, {1, 1, 1}}, {x}, where);
  return reshape(cut, Shape{(end - begin) * width, e}, where);
}

}  // namespace detail

// The sum (mean, min, max) of the results of n thunks, on every replica. `graph`: the ReplicaContext. `thunks`:
// anything with size() and [], with functions without arguments that return a Tensor<T>. A mean is the sum divided by
// n. Gradients flow through.
//
// The thunks are dealt over the replicas in contiguous blocks, and a replica calls only its own. It reduces their
// results in a tree; then an all_reduce combines the replicas. So the bits depend on the number of replicas (or members
// of a group), not on the placement. If there are fewer thunks than replicas, a replica without one calls the first
// thunk.
//
// Rules for thunks:
// - They give equal shapes and dtypes.
// - They call no collectives, and they declare and assign no variables. The reason: not every replica calls them.
// - Gradients may be taken with respect to tensors that every thunk uses, or to all tensors that the thunks use
//   together. A tensor that only some thunks use, taken alone, is refused: the replicas would ask for different
//   collectives.
//
// Throws BuildError without thunks, if types differ, or if the reduction does not fit the dtype.
template <class Thunks>
auto map_reduce(Graph& graph, const Thunks& thunks, Reduction reduction, const CollectiveOptions& options = {},
                std::source_location where = std::source_location::current()) {
  static_assert(
      detail::TensorThunks<Thunks>,
      "replicator: map_reduce takes a vector (or array) of functions without arguments that return a rp::Tensor");
  if constexpr (detail::TensorThunks<Thunks>) {
    using T = typename detail::ThunkTensor<Thunks>::element_type;
    const auto mapped = detail::run_thunks(graph, thunks, "map_reduce", options, where);
    const bool adds = reduction == Reduction::sum || reduction == Reduction::mean;
    detail::require_reducible(mapped.type, reduction, mapped.where);
    // A replica without thunks adds zeros to a sum. To a minimum or maximum it may contribute a value twice.
    const AnyTensor local = !mapped.own.empty() ? detail::fold_thunks(mapped.own, {0, static_cast<int>(mapped.own.size())}, reduction, where)
                            : adds              ? detail::nothing_of(mapped.first, where)
                                                : mapped.first;
    const Tensor<T> total = all_reduce(Tensor<T>{local}, adds ? Reduction::sum : reduction, options, where);
    return reduction == Reduction::mean ? Tensor<T>{apply(detail::ScalarOp::divide, total, mapped.count, Location{where})} : total;
  }
}

// The results of n thunks along a new axis 0, in their order, on every replica: [n, ...]. The thunks are dealt as by
// map_reduce, with the same rules. No value is computed across replicas. So the bits are those of one replica that
// calls all thunks, if these use no random numbers and nothing specific to the replica.
template <class Thunks>
auto map_gather(Graph& graph, const Thunks& thunks, const CollectiveOptions& options = {},
                std::source_location where = std::source_location::current()) {
  static_assert(
      detail::TensorThunks<Thunks>,
      "replicator: map_gather takes a vector (or array) of functions without arguments that return a rp::Tensor");
  if constexpr (detail::TensorThunks<Thunks>) {
    using T = typename detail::ThunkTensor<Thunks>::element_type;
    const auto mapped = detail::run_thunks(graph, thunks, "map_gather", options, where);
    const std::int64_t members = mapped.members, more = mapped.count % members, elements = mapped.type.shape.elements();
    const std::int64_t most = mapped.count / members + (more > 0 ? 1 : 0);
    std::vector<AnyTensor> rows;
    for (const auto& result : mapped.own) rows.push_back(reshape(result, Shape{1, elements}, Location{where}));
    if (rows.empty()) rows.push_back(reshape(mapped.first, Shape{1, elements}, Location{where}));  // it is cut off below
    if (const auto missing = most - static_cast<std::int64_t>(rows.size()); missing > 0)
      rows.push_back(fill(graph, {mapped.type.dtype, Shape{missing, elements}}, 0, where));
    AnyTensor all = all_gather(Tensor<T>{detail::join_rows(rows, where)}, options, where);
    if (more > 0) {
      all = reshape(all, Shape{members, most, elements}, Location{where});
      std::vector<AnyTensor> parts{detail::cut_rows(all, 0, more, most, where)};
      if (most > 1) parts.push_back(detail::cut_rows(all, more, members, most - 1, where));
      all = detail::join_rows(parts, where);
    }
    Shape shape{mapped.count};
    for (const auto extent : mapped.type.shape) shape.push_back(extent);
    return Tensor<T>{reshape(all, shape, Location{where})};
  }
}

}  // namespace replicator
