// SPDX-License-Identifier: Apache-2.0
// Spectral normalisation: divides a weight by its largest singular value.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include <replicator/nn/layer_text.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/stop_gradient.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct SpectralNormOptions {
  bool training = true;  // false: do not update u
  std::int64_t power_iterations = 1;
  double epsilon = 1e-12;        // lower bound of the lengths by which vectors are divided
  std::int64_t output_axis = 0;  // of the weight; the layers set it
};

namespace detail {

template <FloatingElement T>
Tensor<T> to_unit_length(Tensor<T> x, double epsilon, std::source_location where) {
  const Tensor<T> squares{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v) { return v * v; }, x)};
  return Tensor<T>{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where, [&](Symbol v, Symbol s) { return v / max(sqrt(s), epsilon); }, x,
      sum(squares, {}, where))};
}

template <FloatingElement T>
struct SingularVectors {
  Tensor<T> u;  // left singular vector, of the weight's rank: extent 1 at all axes but the output's
  Tensor<T> v;  // right singular vector: extent 1 at the output's axis
};

// Repeats v = W^T u, u = W v `power_iterations` times, each scaled to unit length. W is the weight as a matrix from all
// its other axes to the output's. Broadcasting replaces the reshape, so the weight may have any layout.
template <FloatingElement T>
SingularVectors<T> power_iterations(Tensor<T> weight, Tensor<T> u, const SpectralNormOptions& options,
                                    std::source_location where) {
  Axes others;
  for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(weight.shape().rank()); ++axis)
    if (axis != options.output_axis) others.axes.push_back(axis);
  const auto product = [&](Tensor<T> by, const Axes& axes) {
    const Tensor<T> terms{apply(replicator::detail::ScalarOp::multiply, {weight.any(), by.any()}, where)};
    return to_unit_length(sum(terms, axes.kept(), where), options.epsilon, where);
  };
  SingularVectors<T> result{u, u};
  for (std::int64_t i = 0; i < options.power_iterations; ++i) {
    result.v = product(result.u, {options.output_axis});
    result.u = product(result.v, others);
  }
  return result;
}

}  // namespace detail

// weight / sigma. sigma = u^T W v estimates the largest singular value of the weight [outputs, ...] as a matrix, after
// a power iteration that starts from <name>_u. Same shape. The gradient treats u and v as constants. A weight of zeros
// gives NaN.
// Variable: <name>_u [outputs], the left singular vector, kept from step to step. It is not trained. It is mirrored
// unless local_variables() lives, so the iteration is the same on all replicas and runs once per device. It moves once
// per step, however often the weight is asked for, and every call sees the same sigma.
// Throws BuildError for a weight with less than two axes, an output_axis that does not exist, or no iteration.
// Source: Miyato, Kataoka, Koyama, Yoshida, "Spectral normalization for generative adversarial networks", 2018.
template <FloatingElement T>
Tensor<T> spectral_norm(ReplicaContext& replica, Tensor<T> weight, std::string_view name,
                        const SpectralNormOptions& options = {},
                        std::source_location where = std::source_location::current()) {
  const auto rank = weight.shape().rank();
  if (rank < 2 || options.output_axis < 0 || options.output_axis >= static_cast<std::int64_t>(rank) ||
      options.power_iterations < 1)
    throw BuildError{
        detail::layer_text(replica, "spectral_norm", name, where) + ": a weight of at least two axes, one of them output_axis, and at least " +
        "one iteration are needed; found " + weight.any().type().text() + ", output_axis " +
        std::to_string(options.output_axis) + " and " + std::to_string(options.power_iterations) + " iterations"};
  const auto axis = static_cast<std::size_t>(options.output_axis);
  const Shape outputs{weight.shape()[axis]};
  Shape column = outputs;
  for (std::size_t i = axis + 1; i < rank; ++i) column.push_back(1);
  const auto memory = replica.variable<T>(std::string{name} + "_u", outputs, Initializer::normal(0, 1),
                                          {VariableKind::mirrored, false}, where);
  const AnyTensor now = memory.read(where);
  const AnyTensor read_first = replica.graph().start_value(memory.index());
  const AnyTensor start = read_first ? read_first : now;
  const auto [u, v] =
      detail::power_iterations(stop_gradient(weight, where), Tensor<T>{reshape(start, column, where)}, options, where);
  if (options.training && now.value() == start.value()) memory.assign(Tensor<T>{reshape(u, outputs, where)}, where);
  const Tensor<T> terms{replicator::detail::map_at(
      weight.graph(), dtype_of<T>, where, [](Symbol w, Symbol a, Symbol b) { return w * a * b; }, weight, u, v)};
  return Tensor<T>{apply(replicator::detail::ScalarOp::divide, {weight, sum(terms, {}, where)}, where)};
}

namespace detail {

// The element type of a layer's variables. A bfloat16 layer has float32 variables and rounds them when it reads them,
// so that small steps of an optimizer are not lost.
template <FloatingElement T>
using VariableElement = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;

// The weight of a layer: the variable <scope>weight, or, spectrally normalised, <scope>weight_orig and <scope>weight_u.
template <FloatingElement T>
Tensor<T> layer_weight(ReplicaContext& replica, const Shape& shape, Initializer initializer,
                       std::optional<SpectralNormOptions> spectral, std::int64_t output_axis,
                       std::source_location where) {
  const auto name = spectral ? "weight_orig" : "weight";
  const auto weight = replica.variable<VariableElement<T>>(name, shape, std::move(initializer), {}, where).read(where);
  if (!spectral) return cast<T>(weight, where);
  spectral->output_axis = output_axis;
  return cast<T>(spectral_norm(replica, weight, "weight", *spectral, where), where);
}

template <FloatingElement T>
Tensor<T> layer_bias(ReplicaContext& replica, std::int64_t features, Initializer initializer, std::source_location where) {
  return cast<T>(replica.variable<VariableElement<T>>("bias", {features}, std::move(initializer), {}, where).read(where), where);
}

}  // namespace detail

}  // namespace replicator::nn
