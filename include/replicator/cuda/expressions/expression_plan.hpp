// SPDX-License-Identifier: Apache-2.0
// Plans how Map and Reduce walk their domains on GPUs, for compiled and for interpreted expressions. All functions are pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/layout.hpp>
#include <replicator/cuda/expressions/operands.hpp>
#include <replicator/cuda/rtc/reduce_extents.hpp>
#include <replicator/graph/domain_layout.hpp>
#include <replicator/graph/fused_reduce.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::detail::cuda {

// Whether integers lack this operation.
constexpr bool only_floating(ScalarOp op) {
  return op == ScalarOp::square_root || (op >= ScalarOp::exponential && op <= ScalarOp::cosine);
}

struct MapPlan {
  Layout layout;
  std::vector<Layout> inputs;  // their layouts
  Operands operands;
};

inline MapPlan plan_of(const Map& map, const KernelRequest& request) {
  const Layout layout = domain_layout(request, map.domain);
  auto inputs = demanded_layouts(request, map.domain, layout);
  auto operands = place_operands(request.inputs, inputs, map.domain, storage_order(layout, map.domain));
  return {layout, std::move(inputs), std::move(operands)};
}

enum class ReduceWay : std::uint8_t {
  few,      // one thread per output element
  blocks,   // one block of threads per block of an output element
  columns,  // one block of threads for neighbouring output elements, which are made of neighbours in memory
};

struct ReducePlan {
  ReduceWay way = ReduceWay::few;
  ReduceExtents extents;
  std::vector<Layout> inputs;    // their layouts
  Operands operands;             // numbered with the kept axes first; for columns, with the reduced axes first
  std::vector<Operand> further;  // what only the epilogue reads: an element for each result, or a single one
};

// Throws BuildError for a minimum or maximum over no elements.
inline ReducePlan plan_of(const Reduce& reduce, const KernelRequest& request) {
  constexpr std::int64_t least_columns = 8;
  const auto is_reduced = [&](std::size_t axis) {
    return std::find(reduce.axes.begin(), reduce.axes.end(), static_cast<std::int64_t>(axis)) != reduce.axes.end();
  };
  const Layout layout = domain_layout(request, reduce.domain);
  ReducePlan plan;
  plan.inputs = demanded_layouts(request, reduce.domain, layout);
  std::vector<std::size_t> kept, axes;  // kept axes in the result's order, reduced ones in memory's order
  for (std::size_t axis = 0; axis < reduce.domain.rank(); ++axis) {
    (is_reduced(axis) ? plan.extents.reduced : plan.extents.kept) *= reduce.domain[axis];
    if (!is_reduced(axis)) kept.push_back(axis);
  }
  std::optional<std::size_t> innermost;
  for (const auto axis : storage_order(layout, reduce.domain)) {
    if (is_reduced(axis)) axes.push_back(axis);
    if (reduce.domain[axis] > 1) innermost = axis;
  }
  while (!kept.empty() && reduce.domain[kept.back()] == 1) kept.pop_back();
  const bool columns = innermost && !kept.empty() && kept.back() == *innermost && reduce.domain[*innermost] >= least_columns;
  if (plan.extents.kept > 0 && plan.extents.reduced == 0 && reduce.kind != ReduceKind::sum)
    throw BuildError{"the " + std::string{name_of(reduce.kind)} + " over no elements was asked for, of the shape " + reduce.domain.text() +
                     ": give the reduced axes an extent of at least 1"};
  plan.way = plan.extents.reduced <= ReduceExtents::few ? ReduceWay::few
             : columns                                  ? ReduceWay::columns
                                                        : ReduceWay::blocks;
  plan.extents.blocks = (plan.extents.reduced + ReduceExtents::block - 1) / ReduceExtents::block;
  if (plan.way == ReduceWay::columns) std::swap(kept, axes);
  kept.insert(kept.end(), axes.begin(), axes.end());
  plan.operands = place_operands(request.inputs, plan.inputs, reduce.domain, kept);
  return plan;
}

// The request for the reduction alone. `reduce` and `results` are of fused.reduce.
inline KernelRequest reduction_of(const FusedReduce& fused, const KernelRequest& request, const AnyOperation& reduce, std::span<const TensorType> results) {
  const auto inputs = fused.reduced_inputs();
  return {reduce, request.inputs.first(inputs), results, request.offered.first(inputs), request.threads, request.choice};
}

inline ReducePlan plan_of(const FusedReduce& fused, const KernelRequest& request) {
  const AnyOperation reduce{fused.reduce};
  const auto results = fused.results(request.inputs);
  auto plan = plan_of(fused.reduce, reduction_of(fused, request, reduce, results));
  for (const auto& input : request.inputs.subspan(fused.reduced_inputs())) {
    plan.inputs.emplace_back();
    const bool is_single = input.shape.elements() == 1;
    plan.further.push_back({input.dtype, is_single ? OperandKind::scalar : OperandKind::linear, {}});
  }
  return plan;
}

// How many neighbouring elements a thread of a reduction can load at once. All of them are of one output element, or of one
// reduced element of neighbouring output elements.
inline int lanes_of(const ReducePlan& plan) {
  if (plan.way == ReduceWay::few) return 1;
  int lanes = lanes_of(plan.operands, {});
  while ((plan.way == ReduceWay::columns ? plan.extents.kept : plan.extents.reduced) % lanes != 0) lanes /= 2;
  return lanes;
}

}  // namespace replicator::detail::cuda
