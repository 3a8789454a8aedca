// SPDX-License-Identifier: Apache-2.0
// Hinge losses, which are zero beyond a margin: for support vector machines, and for generative adversarial networks.
#pragma once

#include <limits>
#include <source_location>

#include <replicator/ops/losses/equal_shapes.hpp>
#include <replicator/ops/losses/loss.hpp>

namespace replicator {

struct HingeOptions {
  double margin = 1;  // a score of the right sign beyond it costs nothing
};

// For each element: max(0, margin - sign score). Signs are 1 or -1. Same shape. Throws BuildError unless the shapes are equal.
// Source: Cortes and Vapnik, "Support-vector networks", 1995.
template <FloatingElement T>
Tensor<T> hinge(Tensor<T> scores, Tensor<T> signs, const HingeOptions& options = {},
                std::source_location where = std::source_location::current()) {
  detail::require_equal_shapes("hinge", scores, signs, where);
  return Tensor<T>{detail::map_at(
      scores.graph(), dtype_of<T>, where, [&](Symbol x, Symbol s) { return relu(options.margin - s * x); }, scores,
      signs)};
}

// For each example: the sum over the other classes c of max(0, margin + score_c - score_label).
// scores [N, C], labels [N] in [0, C) -> [N]. A label outside of [0, C) gives NaN, and so do
// its gradients. (PyTorch's multi_margin_loss divides by C.)
// Throws BuildError where the shapes do not fit.
// Source: Weston and Watkins, "Support vector machines for multi-class pattern recognition", 1999.
template <FloatingElement T, Element L>
Tensor<T> multiclass_hinge(Tensor<T> scores, Tensor<L> labels, const HingeOptions& options = {},
                           std::source_location where = std::source_location::current()) {
  static_assert(LabelElement<L>, "replicator: multiclass_hinge takes the number of each example's class as std::int32_t or std::int64_t: rp::cast<std::int32_t>(labels), or rp::argmax(labels) where they are one-hot");
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(multiclass_hinge(cast<float>(scores, where), labels, options, where), where);
  detail::require_classes("multiclass_hinge", scores, labels, where);
  Graph& graph = scores.graph();
  const auto classes = scores.shape()[1];
  const AnyTensor numbers = detail::class_numbers<T>(graph, classes, where);
  const AnyTensor label = reshape(labels, {scores.shape()[0], 1}, where);
  const AnyTensor own = detail::map_at(
      graph, dtype_of<T>, where, [](Symbol x, Symbol c, Symbol l) { return select(c == l, x, 0); }, scores, numbers,
      label);
  const AnyTensor right = detail::reduce(ReduceKind::sum, own, Axes{1}.kept(), "multiclass_hinge", where);
  const AnyTensor excess = detail::map_at(
      graph, dtype_of<T>, where,
      [&](Symbol x, Symbol r, Symbol c, Symbol l) {
        const Symbol loss = select(c == l, 0, relu(options.margin + (x - r)));
        return loss * select(l >= 0 && l < classes, 1, std::numeric_limits<double>::quiet_NaN());  // a factor, so that gradients are NaN too
      },
      scores, right, numbers, label);
  return Tensor<T>{detail::reduce(ReduceKind::sum, excess, {1}, "multiclass_hinge", where)};
}

// The loss of a discriminator, from its scores: mean(max(0, 1 - real)) + mean(max(0, 1 + fake)), a scalar.
// Source: Lim and Ye, "Geometric GAN", 2017; Miyato, Kataoka, Koyama, Yoshida, "Spectral normalization for GANs", 2018.
template <FloatingElement T>
Tensor<T> hinge_discriminator_loss(Tensor<T> real, Tensor<T> fake,
                                   std::source_location where = std::source_location::current()) {
  const auto side = [&](Tensor<T> scores, double sign) {
    const Tensor<T> losses{detail::map_at(
        scores.graph(), dtype_of<T>, where, [&](Symbol x) { return relu(1 + sign * x); }, scores)};
    return mean(losses, {}, where).any();
  };
  return Tensor<T>{apply(detail::ScalarOp::add, {side(real, -1), side(fake, 1)}, where)};
}

// The loss of its generator: -mean(fake), a scalar.
template <FloatingElement T>
Tensor<T> hinge_generator_loss(Tensor<T> fake, std::source_location where = std::source_location::current()) {
  return Tensor<T>{apply(detail::ScalarOp::negate, {mean(fake, {}, where).any()}, where)};
}

}  // namespace replicator
