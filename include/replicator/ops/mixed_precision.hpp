// SPDX-License-Identifier: Apache-2.0
// rp::mixed_precision: products of float32 tensors computed in bfloat16.
#pragma once

#include <source_location>
#include <string>
#include <utility>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/map.hpp>

namespace replicator {

// Computes products in bfloat16 while the returned object lives. This holds for matmul, convolution and convolution_transpose of
// float32 tensors, and for the layers made of them. They round both operands to bfloat16, add in float32, and round the sums to
// bfloat16. Their results are float32 again. Their gradients are computed in the same way, wherever they are asked for.
//
// relu of float32 also rounds its result, and the gradient that arrives there, to bfloat16. Most of these values are read by
// products, which would round them anyway. This halves the bytes that are kept and moved between layers.
//
// Nothing else changes: variables, optimizers and their state, biases, normalisation and its statistics, losses, and tensors of
// other types. A loss of your own that uses relu belongs after the end of this object's life, or inside rp::map.
//
//   const auto mixed = rp::mixed_precision(replica);
//   const auto logits = rp::models::resnet50(replica, images);
//
// DType::float32 excludes a part again. Throws BuildError for any other type. Where the processor has no bfloat16, the values
// differ only by the order of additions, and nothing becomes faster.
// Source: Micikevicius et al., "Mixed precision training", 2018; Kalamkar et al., "A study of BFLOAT16 for deep learning training", 2019.
inline detail::ScopedValue<DType> mixed_precision(Graph& graph, DType products = DType::bfloat16,
                                                  std::source_location where = std::source_location::current()) {
  if (products != DType::bfloat16 && products != DType::float32)
    throw BuildError{detail::call_text(graph.replica(), "mixed_precision", where) + " was asked for products in " +
                     std::string{name_of(products)} + ": take rp::DType::bfloat16, or rp::DType::float32 for a part that is to be exact"};
  return {graph.products(), products};
}

namespace detail {

// Whether the mixed precision in force applies to a tensor where it is used.
inline bool is_mixed(const AnyTensor& x) { return x.graph().products() != DType::float32 && x.dtype() == DType::float32; }

// A node of an operation that is linear in both operands, in the precision in force.
inline AnyTensor product_node(AnyOperation operation, AnyTensor a, AnyTensor b, Location where) {
  Graph& graph = a.graph();
  if (!is_mixed(a) || !is_mixed(b)) return compute(graph, std::move(operation), {a, b}, where);
  const DType narrow = graph.products();
  return converted(compute(graph, std::move(operation), {converted(a, narrow, where), converted(b, narrow, where)}, where), DType::float32, where);
}

// relu(x), rounded as products would round it.
inline AnyTensor rectified_node(AnyTensor x, Location where) {
  if (!is_mixed(x)) return apply(detail::ScalarOp::rectify, {x}, where);
  detail::Expression rectify;
  rectify.inputs = 1;
  rectify.outputs = {rectify.apply(detail::ScalarOp::rectify, rectify.input(0))};
  return converted(map_node(x.graph(), std::move(rectify), {&x, 1}, x.graph().products(), where), DType::float32, where);
}

}  // namespace detail
}  // namespace replicator
