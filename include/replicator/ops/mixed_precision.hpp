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
// they are asked for, are computed in the same way. All else stays as it is: variables, optimizers and what they remember, biases,
// normalisation and its statistics, losses, tensors of other types.
//   const auto mixed = rp::mixed_precision(replica);
//   const auto logits = rp::models::resnet50(replica, images);
// DType::float32 takes a part out again. Throws BuildError for any other type.
// Where the processor has no bfloat16 the values are the same but for the order of additions, and nothing becomes faster.
// Source: Micikevicius et al., "Mixed precision training", 2018; Kalamkar et al., "A study of BFLOAT16 for deep learning training", 2019.
inline ScopedValue<DType> mixed_precision(Graph& graph, DType products = DType::bfloat16,
                                          std::source_location where = std::source_location::current()) {
  if (products != DType::bfloat16 && products != DType::float32)
    throw BuildError{"replica " + std::to_string(graph.replica()) + ": mixed_precision at " + Location{where}.text() + " was asked for products in " +
                     std::string{name_of(products)} + ": take rp::DType::bfloat16, or rp::DType::float32 for a part that is to be exact"};
  return {graph.products(), products};
}

namespace detail {

// A node of an operation that is linear in both operands, in the precision asked for.
inline AnyTensor product_node(AnyOperation operation, AnyTensor a, AnyTensor b, Location where) {
  Graph& graph = a.graph();
  const DType narrow = graph.products();
  const bool mixed = narrow != DType::float32 && a.dtype() == DType::float32 && b.dtype() == DType::float32;
  if (!mixed) return compute(graph, std::move(operation), {a, b}, where);
  const auto converted = [&](AnyTensor x, DType to) {
    Expression same;
    same.inputs = 1;
    same.outputs = {same.input(0)};
    return map_node(graph, std::move(same), {&x, 1}, to, where);
  };
  return converted(compute(graph, std::move(operation), {converted(a, narrow), converted(b, narrow)}, where), DType::float32);
}

}  // namespace detail
}  // namespace replicator
