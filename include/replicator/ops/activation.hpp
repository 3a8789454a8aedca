// SPDX-License-Identifier: Apache-2.0
// Activations beyond relu and tanh. None overflows on the way, except for the derivative of gelu beyond 1e19 in float32. Smooth
// activations have their derivative at 0, too. That is why sigmoid and softplus are operations of their own: their formulas keep
// exp small by abs(x), which has no derivative at 0.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include <replicator/ops/elementwise.hpp>

namespace replicator {

namespace detail {
// log(1 + z) to the last places for 0 <= z <= 1. Source: Kahan; Goldberg, "What every computer scientist should know about
// floating-point arithmetic", 1991, theorem 4. It must not be differentiated: the quotient is 0 / 0 for tiny z.
inline Symbol log_one_plus(Symbol z) {
  const Symbol w = 1 + z;
  return select(w == 1, z, log(w) * z / (w - 1));
}

// A sigmoid made of straight lines.
inline Symbol sigmoid_of_lines(Symbol v) { return min(relu(v + 3), 6) / 6; }

inline std::vector<TensorType> require_one_floating(std::span<const TensorType> inputs) {
  if (!is_floating(inputs[0].dtype)) throw BuildError{"found " + inputs[0].text() + ": cast it to a floating type"};
  return {inputs[0]};
}
}  // namespace detail

// 1 / (1 + exp(-x)). Its derivative is y (1 - y).
struct Sigmoid {
  static constexpr std::string_view name = "sigmoid";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    return detail::require_one_floating(inputs);
  }
  template <class = void>
  std::vector<AnyTensor> expand(const ExpansionContext& at) const {
    return {detail::map_at(
        at.graph, at.inputs[0].dtype(), at.where,
        [](Symbol x) {
          const Symbol z = exp(-abs(x));
          return select(x < 0, z, 1) / (1 + z);
        },
        at.inputs[0])};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    return {detail::map_at(
        at.graph, at.inputs[0].dtype(), at.where, [](Symbol y, Symbol u) { return u * (y * (1 - y)); }, at.outputs[0],
        at.upstream[0])};
  }
};

// log(1 + exp(x)). Its derivative is the sigmoid.
struct Softplus {
  static constexpr std::string_view name = "softplus";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    return detail::require_one_floating(inputs);
  }
  template <class = void>
  std::vector<AnyTensor> expand(const ExpansionContext& at) const {
    return {detail::map_at(
        at.graph, at.inputs[0].dtype(), at.where, [](Symbol x) { return relu(x) + detail::log_one_plus(exp(-abs(x))); },
        at.inputs[0])};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    const AnyTensor slope = compute(at.graph, Sigmoid{}, {at.inputs[0]}, at.where);
    return {apply(detail::ScalarOp::multiply, {at.upstream[0], slope}, at.where)};
  }
};

// 1 / (1 + exp(-x)).
template <FloatingElement T>
Tensor<T> sigmoid(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(x.graph(), Sigmoid{}, {x}, where)};
}

// log(1 + exp(x)).
template <FloatingElement T>
Tensor<T> softplus(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(x.graph(), Softplus{}, {x}, where)};
}

// log(sigmoid(x)) = -softplus(-x).
template <FloatingElement T>
Tensor<T> log_sigmoid(Tensor<T> x, std::source_location where = std::source_location::current()) {
  const AnyTensor negative = apply(detail::ScalarOp::negate, {x.any()}, where);
  return Tensor<T>{apply(detail::ScalarOp::negate, {compute(x.graph(), Softplus{}, {negative}, where)}, where)};
}

// x sigmoid(x), also called swish. Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
template <FloatingElement T>
Tensor<T> silu(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{apply(detail::ScalarOp::multiply, {x.any(), compute(x.graph(), Sigmoid{}, {x}, where)}, where)};
}

enum class Gelu {
  tanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): PyTorch's approximate="tanh", within 5e-4 of the exact one
  exact  // x Phi(x) = x / 2 (1 + erf(x / sqrt(2))): PyTorch's default
};

// x Phi(x), or the authors' approximation. Phi is the distribution function of the normal distribution.
// Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
template <FloatingElement T>
Tensor<T> gelu(Tensor<T> x, Gelu formula = Gelu::tanh, std::source_location where = std::source_location::current()) {
  constexpr double root = 0.797884560802865355880;  // sqrt(2 / pi)
  if (formula == Gelu::exact) {
    constexpr double half_root = 0.707106781186547524401;  // 1 / sqrt(2)
    return Tensor<T>{detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol v) { return 0.5 * v * (1 + erf(v * half_root)); }, x)};
  }
  return Tensor<T>{detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v) { return 0.5 * v * (1 + tanh(root * v * (1 + 0.044715 * (v * v)))); },
      x)};
}

// The smaller of relu(x) and 6. Source: Howard et al., "MobileNets", 2017.
template <FloatingElement T>
Tensor<T> relu6(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v) { return min(relu(v), 6); }, x)};
}

// relu6(x + 3) / 6, a sigmoid made of straight lines.
// Source: Howard et al., "Searching for MobileNetV3", 2019.
template <FloatingElement T>
Tensor<T> hardsigmoid(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::map_at(
      x.graph(), dtype_of<T>, where, detail::sigmoid_of_lines, x)};
}

// x hardsigmoid(x). Source: Howard et al., "Searching for MobileNetV3", 2019.
template <FloatingElement T>
Tensor<T> hardswish(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v) { return v * detail::sigmoid_of_lines(v); }, x)};
}

// x > 0 ? x : slope x. Source: Maas, Hannun, Ng, "Rectifier nonlinearities improve neural network acoustic models", 2013.
template <FloatingElement T>
Tensor<T> leaky_relu(Tensor<T> x, double slope = 0.01, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::map_at(
      x.graph(), dtype_of<T>, where, [&](Symbol v) { return select(v > 0, v, slope * v); }, x)};
}

// x > 0 ? x : alpha (exp(x) - 1). Source: Clevert, Unterthiner, Hochreiter, "Fast and accurate deep network learning by
// exponential linear units (ELUs)", 2016.
template <FloatingElement T>
Tensor<T> elu(Tensor<T> x, double alpha = 1, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::map_at(
      x.graph(), dtype_of<T>, where,
      [&](Symbol v) {
        const Symbol low = min(v, 0);  // keeps exp finite where its branch is not taken: otherwise its derivative would be 0 times infinity
        const Symbol half = tanh(low / 2);
        // Both are exp(low) - 1. The difference would lose digits near 0, and the quotient's derivative far from it.
        return select(v > 0, v, alpha * select(low > -0.5, 2 * half / (1 - half), exp(low) - 1));
      },
      x)};
}

}  // namespace replicator
