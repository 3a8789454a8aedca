// SPDX-License-Identifier: Apache-2.0
// rp::mixed_precision: products of float32 tensors computed in bfloat16.
#pragma once

#include <source_location>
#include <string>
#include <utility>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/map.hpp>

namespace replicator {

// While it lives, matmul, convolution and convolution_transpose of float32 tensors, and the layers made of them, round both
// operands to bfloat16, add in float32, and round the sums to bfloat16; what they give is float32 again. Their gradients, wherever
// they are asked for, are computed in the same way. What every relu gives of float32 is rounded to bfloat16, too, and so is the gradient
// that arrives there: most is read by products, which would round it, and between layers half the bytes are kept and moved. All else stays
// as it is: variables, optimizers and what they remember, biases, normalisation and its statistics, losses (one of your own that takes a
// relu belongs behind it, or into rp::map), tensors of other types.
//   const auto mixed = rp::mixed_precision(replica);
//   const auto logits = rp::models::resnet50(replica, images);
// DType::float32 takes a part out again. Throws BuildError for any other type.
// Where the processor has no bfloat16 the values are the same but for the order of additions, and nothing becomes faster.
// Source: Micikevicius et al., "Mixed precision training", 2018; Kalamkar et al., "A study of BFLOAT16 for deep learning training", 2019.
inline detail::ScopedValue<DType> mixed_precision(Graph& graph, DType products = DType::bfloat16,
                                                  std::source_location where = std::source_location::current()) {
  if (products != DType::bfloat16 && products != DType::float32)
    throw BuildError{"replica " + std::to_string(graph.replica()) + ": mixed_precision at " + Location{where}.text() + " was asked for products in " +
                     std::string{name_of(products)} + ": take rp::DType::bfloat16, or rp::DType::float32 for a part that is to be exact"};
  return {graph.products(), products};
}

namespace detail {

// Whether a tensor takes part in the mixed precision that holds where it is used.
inline bool is_mixed(const AnyTensor& x) { return x.graph().products() != DType::float32 && x.dtype() == DType::float32; }

// A node of an operation that is linear in both operands, in the precision asked for.
inline AnyTensor product_node(AnyOperation operation, AnyTensor a, AnyTensor b, Location where) {
  Graph& graph = a.graph();
  if (!is_mixed(a) || !is_mixed(b)) return compute(graph, std::move(operation), {a, b}, where);
  const DType narrow = graph.products();
  return converted(compute(graph, std::move(operation), {converted(a, narrow, where), converted(b, narrow, where)}, where), DType::float32, where);
}

// relu(x), rounded as products would read it.
inline AnyTensor rectified_node(AnyTensor x, Location where) {
  if (!is_mixed(x)) return apply(detail::ScalarOp::rectify, {x}, where);
  detail::Expression rectify;
  rectify.inputs = 1;
  rectify.outputs = {rectify.apply(detail::ScalarOp::rectify, rectify.input(0))};
  return converted(map_node(x.graph(), std::move(rectify), {&x, 1}, x.graph().products(), where), DType::float32, where);
}

}  // namespace detail
}  // namespace replicator
