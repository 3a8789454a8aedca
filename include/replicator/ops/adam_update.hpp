// SPDX-License-Identifier: Apache-2.0
// Adam's update as an operation. Its formula is written once for graphs (on symbols) and for kernels (on numbers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/symbol.hpp>

namespace replicator {

namespace detail {

template <class Number>
struct AdamConstants {
  Number beta1, rest1;  // 1 - beta1
  Number beta2, rest2;
  Number epsilon;
};

// first = beta1 first + rest1 g;  second = beta2 second + rest2 g g
template <class X, class Number>
constexpr X next_first_moment(X first, X g, const AdamConstants<Number>& c) {
  return c.beta1 * first + c.rest1 * g;
}
template <class X, class Number>
constexpr X next_second_moment(X second, X g, const AdamConstants<Number>& c) {
  return c.beta2 * second + c.rest2 * (g * g);
}
// p - rate first / (root factor + epsilon), where root is the square root of the second moment
template <class X, class Number>
constexpr X next_weight(X p, X first, X root, X rate, X factor, const AdamConstants<Number>& c) {
  return p - rate * (first / (root * factor + c.epsilon));
}

// (p, gradient, kept, rate, factor, first, second) -> (p, first, second), elementwise, computed in `compute`. `gradient_decay` p
// is added to the gradient. `decays`: p is multiplied by `kept` first.
template <class = void>
ExpressionPtr adam_expression(DType compute, const AdamConstants<double>& c, double gradient_decay, bool decays) {
  auto e = std::make_shared<Expression>();
  e->compute = compute;
  e->inputs = 7;
  std::vector<Symbol> x;
  for (std::uint16_t i = 0; i < e->inputs; ++i) x.emplace_back(*e, e->input(i));
  const Symbol g = gradient_decay > 0 ? x[1] + gradient_decay * x[0] : x[1];
  const Symbol p = decays ? x[0] * x[2] : x[0];
  const Symbol first = next_first_moment(x[5], g, c), second = next_second_moment(x[6], g, c);
  e->outputs = {next_weight(p, first, sqrt(second), x[3], x[4], c).index(), first.index(), second.index()};
  return e;
}

}  // namespace detail

// Adam's update of a float32 variable: (p, gradient, kept, rate, factor, first, second) -> (p, first, second). kept, rate and
// factor are scalars. It has no gradient. Devices without a kernel for it run the Map of its formula, with the same bits.
struct AdamUpdate {
  static constexpr std::string_view name = "adam";
  detail::AdamConstants<double> constants;
  bool decays = false;  // p is multiplied by `kept` first

  template <class V>
  void describe(V& v) const {
    v("beta1", constants.beta1);
    v("rest1", constants.rest1);
    v("beta2", constants.beta2);
    v("rest2", constants.rest2);
    v("epsilon", constants.epsilon);
    v("decays", decays);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const TensorType tensor{DType::float32, inputs[0].shape}, scalar{DType::float32, {}};
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (const auto& wanted = i < 2 || i > 4 ? tensor : scalar; inputs[i] != wanted)
        throw BuildError{"input " + std::to_string(i) + " is " + inputs[i].text() + ": it must be " + wanted.text()};
    return {3, tensor};
  }
  double work(std::span<const TensorType> inputs) const { return 14 * static_cast<double>(inputs[0].shape.elements()); }
  template <class = void>
  std::vector<AnyTensor> expand(const ExpansionContext& at) const {
    const auto expression = detail::adam_expression(DType::float32, constants, 0, decays);
    const auto node = add_compute(at.graph, Map{expression, at.inputs[0].shape(), {3, DType::float32}}, at.inputs, at.where);
    return {at.graph.tensor(node, 0), at.graph.tensor(node, 1), at.graph.tensor(node, 2)};
  }
};

}  // namespace replicator
