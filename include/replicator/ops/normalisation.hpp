// SPDX-License-Identifier: Apache-2.0
// Moments over axes, and normalisation by them.
//
// The forward pass reads x three times: for the mean, for the squares around it, and to write y. The backward pass reads it
// twice: to sum, and to write dx. The gradients of mean, scale and shift read the same tensors, so their sums are merged. Over
// last axes CPUs do all of it row by row, in the cache (graph/rows.hpp).
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/number_text.hpp>
#include <replicator/core/real.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>

namespace replicator {

// x -> mean, variance (divided by the number of elements n). Both keep the reduced axes with extent 1. This is one node, because
// its derivative is simpler than the derivatives of its parts: dmean / n + dvariance 2 (x - mean) / n.
struct Moments {
  static constexpr std::string_view name = "moments";
  std::vector<std::int64_t> axes;  // ascending

  template <class V>
  void describe(V& v) const {
    v("axes", axes);
  }

  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    if (!is_floating(inputs[0].dtype)) throw BuildError{"found " + inputs[0].text() + ": cast it to a floating type"};
    if (detail::reduced_elements(inputs[0].shape, axes) == 0)
      throw BuildError{"found " + inputs[0].text() + ", which has no elements"};
    const TensorType type{inputs[0].dtype, detail::keep_axes(inputs[0].shape, axes)};
    return {type, type};
  }

  std::vector<AnyTensor> expand(const ExpansionContext& at) const {
    const AnyTensor& x = at.inputs[0];
    const Shape kept = detail::keep_axes(x.shape(), axes);
    const auto n = static_cast<double>(detail::reduced_elements(x.shape(), axes));
    const auto average = [&](AnyTensor values) {
      detail::Expression e;
      e.compute = detail::compute_type(x.dtype());
      e.inputs = 1;
      e.outputs = {e.input(0)};
      const AnyTensor sum =
          reduce_node(at.graph, ReduceKind::sum, std::move(e), {&values, 1}, x.shape(), axes, x.dtype(), at.where);
      return reshape(apply(detail::ScalarOp::divide, sum, n, at.where), kept, at.where);
    };
    const AnyTensor mean = average(x);
    const AnyTensor squares = detail::map_at(
        at.graph, x.dtype(), at.where, [](Symbol v, Symbol m) { return (v - m) * (v - m); }, x, mean);
    return {mean, average(squares)};
  }

  template <class = void>
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    const AnyTensor& x = at.inputs[0];
    const AnyTensor& mean = at.outputs[0];
    const double part = 1 / static_cast<double>(detail::reduced_elements(x.shape(), axes));
    // The factors are applied to the small tensors, so that the pass over x has little to do.
    const auto scaled = [&](AnyTensor upstream, double factor) {
      return upstream ? apply(detail::ScalarOp::multiply, upstream, factor, at.where)
                      : fill(at.graph, mean.type(), 0, at.where);
    };
    return {detail::map_at(
        at.graph, x.dtype(), at.where, [](Symbol v, Symbol m, Symbol dm, Symbol dv) { return dm + dv * (v - m); }, x,
        mean, scaled(at.upstream[0], part), scaled(at.upstream[1], 2 * part))};
  }
};

// The result of `moments`.
template <FloatingElement T>
struct MeanAndVariance {
  Tensor<T> mean;
  Tensor<T> variance;  // divided by the number of elements, not by one less
};

// Mean and variance over the axes (all by default). Throws BuildError for an axis that does not exist.
template <FloatingElement T>
MeanAndVariance<T> moments(Tensor<T> x, const Axes& axes = {},
                           std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    const auto exact = moments(cast<float>(x, where), axes, where);
    return {cast<T>(exact.mean, where), cast<T>(exact.variance, where)};
  }
  Graph& graph = x.graph();
  const auto resolved = detail::resolve_axes(axes, x.shape(), "moments", where);
  const AnyTensor operands[] = {x};
  const auto node = add_compute(graph, Moments{resolved}, operands, where);
  const auto shaped = [&](std::uint32_t output) {
    const AnyTensor value = graph.tensor(node, output);
    if (axes.keep) return Tensor<T>{value};
    Shape shape;
    for (std::size_t axis = 0, next = 0; axis < x.shape().rank(); ++axis)
      if (next < resolved.size() && resolved[next] == static_cast<std::int64_t>(axis))
        ++next;
      else
        shape.push_back(x.shape()[axis]);
    return Tensor<T>{reshape(value, shape, where)};
  };
  return {shaped(0), shaped(1)};
}

namespace detail {
inline void require_epsilon(double epsilon, std::source_location where) {
  if (!(epsilon >= 0 && detail::is_finite(epsilon)))
    throw BuildError{"the normalisation at " + Location{where}.text() + ": epsilon is " + number_text(epsilon) +
                     ": it must be a finite number and must not be negative"};
}
}  // namespace detail

// (x - mean) gamma / sqrt(variance + epsilon) + beta. The four broadcast against x. Throws BuildError for an epsilon that is
// negative or not finite.
// Source: Ioffe and Szegedy, "Batch normalization", 2015.
template <FloatingElement T>
Tensor<T> normalise(Tensor<T> x, const MeanAndVariance<T>& by, Tensor<T> gamma, Tensor<T> beta, double epsilon = 1e-5,
                    std::source_location where = std::source_location::current()) {
  detail::require_epsilon(epsilon, where);
  const AnyTensor scale = detail::titled_map(
      "normalise", dtype_of<T>, where, [&](Symbol g, Symbol v) { return g / sqrt(v + epsilon); }, gamma, by.variance);
  return Tensor<T>{detail::titled_map(
      "normalise", dtype_of<T>, where, [](Symbol v, Symbol m, Symbol s, Symbol b) { return (v - m) * s + b; }, x, by.mean,
      scale, beta)};
}

}  // namespace replicator
