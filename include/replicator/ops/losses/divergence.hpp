// SPDX-License-Identifier: Apache-2.0
// The Kullback-Leibler divergence between distributions over classes.
#pragma once

#include <cstdint>
#include <source_location>

#include <replicator/ops/losses/equal_shapes.hpp>
#include <replicator/ops/losses/loss.hpp>

namespace replicator {

namespace detail {
inline AnyTensor divergence(std::string_view what, AnyTensor log_p, AnyTensor log_q, std::int64_t axis,
                            Location where) {
  const AnyTensor terms = map_at(
      log_p.graph(), log_p.dtype(), where,
      // A class that p never takes costs nothing, even if q never takes it either. Infinity minus infinity would be NaN.
      [](Symbol lp, Symbol lq) {
        const Symbol p = exp(lp);
        return p * select(p > 0, lp - lq, 0);
      },
      log_p, log_q);
  return reduce(ReduceKind::sum, terms, {axis}, what, where);
}
}  // namespace detail

// KL(p || q) = sum p (log p - log q) along an axis (the last by default), from logarithms of probabilities. The axis disappears.
// (PyTorch's kl_div takes the two the other way round.) Throws BuildError unless the shapes are equal.
// Source: Kullback and Leibler, "On information and sufficiency", 1951.
template <FloatingElement T>
Tensor<T> kl_divergence(Tensor<T> log_p, Tensor<T> log_q, std::int64_t axis = -1,
                        std::source_location where = std::source_location::current()) {
  detail::require_equal_shapes("kl_divergence", log_p, log_q, where);
  return Tensor<T>{detail::divergence("kl_divergence", log_p, log_q, axis, where)};
}

// The same for categorical distributions with these logits, which need not be normalised.
template <FloatingElement T>
Tensor<T> categorical_kl_divergence(Tensor<T> p_logits, Tensor<T> q_logits, std::int64_t axis = -1,
                                    std::source_location where = std::source_location::current()) {
  detail::require_equal_shapes("categorical_kl_divergence", p_logits, q_logits, where);
  return Tensor<T>{detail::divergence("categorical_kl_divergence", log_softmax(p_logits, axis, where),
                                      log_softmax(q_logits, axis, where), axis, where)};
}

}  // namespace replicator
