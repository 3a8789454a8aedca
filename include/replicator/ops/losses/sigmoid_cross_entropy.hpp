// SPDX-License-Identifier: Apache-2.0
// Binary cross-entropy from logits.
#pragma once

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include <replicator/ops/activation.hpp>
#include <replicator/ops/losses/equal_shapes.hpp>

namespace replicator {

// Inputs x, t: max(x, 0) - x t + log(1 + exp(-|x|)). It is an operation of its own for the sake of its derivative, sigmoid(x) -
// t. The formula neither overflows nor cancels, but its first and last terms have a kink at 0. The derivative has none.
struct SigmoidCrossEntropy {
  static constexpr std::string_view name = "sigmoid_cross_entropy";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    if (inputs[0] != inputs[1])
      throw BuildError{"found " + inputs[0].text() + " and " + inputs[1].text() + ", which must be equal"};
    return detail::require_one_floating(inputs);
  }
  template <class = void>
  std::vector<AnyTensor> expand(const ExpansionContext& at) const {
    return {detail::map_at(
        at.graph, at.inputs[0].dtype(), at.where,
        [](Symbol x, Symbol t) { return relu(x) - x * t + detail::log_one_plus(exp(-abs(x))); }, at.inputs[0],
        at.inputs[1])};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    const auto product = [&](auto f, AnyTensor a) {
      return detail::map_at(at.graph, a.dtype(), at.where, f, a, at.inputs[1], at.upstream[0]);
    };
    std::vector<AnyTensor> result(2);
    if (at.wanted[0])
      result[0] = product([](Symbol y, Symbol t, Symbol u) { return u * (y - t); },
                          compute(at.graph, Sigmoid{}, {at.inputs[0]}, at.where));
    if (at.wanted[1]) result[1] = product([](Symbol x, Symbol, Symbol u) { return -(u * x); }, at.inputs[0]);
    return result;
  }
};

// For each element: -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)). The targets t in [0, 1] are probabilities of "yes". Same
// shape. Throws BuildError unless the shapes are equal.
template <FloatingElement T>
Tensor<T> sigmoid_cross_entropy(Tensor<T> logits, Tensor<T> targets,
                                std::source_location where = std::source_location::current()) {
  detail::require_equal_shapes("sigmoid_cross_entropy", logits, targets, where);
  return Tensor<T>{compute(logits.graph(), SigmoidCrossEntropy{}, {logits, targets}, where)};
}

}  // namespace replicator
