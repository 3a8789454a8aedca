// SPDX-License-Identifier: Apache-2.0
// Attention: for each query, the mean of the values, weighted by how well their keys fit the query.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <source_location>
#include <string>

#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/random.hpp>

namespace replicator {

struct AttentionOptions {
  bool causal = false;                    // query i sees keys 0 to i; there must be as many keys as queries
  std::optional<Tensor<bool>> mask = {};  // true where a query sees a key; broadcasts to [.., T, S]
  std::optional<double> scale = {};       // factor of the products; 1 / sqrt(D) unless given
  double dropout = 0;                     // probability that a weight is 0 in this step, as in rp::dropout
};

// softmax(q k^T scale) v: q [.., T, D], k [.., S, D], v [.., S, E] -> [.., T, E]. The leading axes (batch, heads) broadcast as in
// NumPy. A query that sees no key gives NaN. All T S weights of a head are kept for the backward pass; rp::recompute avoids that.
// Throws BuildError where the shapes do not fit. Source: Vaswani et al., "Attention is all you need", 2017, section 3.2.1.
template <FloatingElement T>
Tensor<T> attention(Tensor<T> q, Tensor<T> k, Tensor<T> v, const AttentionOptions& options = {},
                    std::source_location where = std::source_location::current()) {
  const auto refuse = [&](const std::string& must) {
    throw BuildError{"replica " + std::to_string(q.graph().replica()) + ": attention at " + Location{where}.text() + ": found queries " +
                     q.any().type().text() + ", keys " + k.any().type().text() + " and values " + v.any().type().text() + ": " + must};
  };
  if (q.shape().rank() < 2 || k.shape().rank() < 2 || v.shape().rank() < 2 || q.shape()[-1] != k.shape()[-1] || k.shape()[-2] != v.shape()[-2])
    refuse("they must be [.., T, D], [.., S, D] and [.., S, E]");
  if (options.causal && q.shape()[-2] != k.shape()[-2]) refuse("causal attention takes as many keys as queries");
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape()[-1])));
  const auto scaled = [scale](Symbol x) { return x * scale; };
  Tensor<T> fits{detail::map_at(q.graph(), dtype_of<T>, where, scaled, matmul(q, k, {.transpose_b = true}, where))};  // [.., T, S]
  const auto hide = [&](auto seen, const auto&... places) {
    const auto shown = [&](Symbol x, auto... p) { return select(seen(p...), x, -std::numeric_limits<double>::infinity()); };
    fits = Tensor<T>{detail::map_at(q.graph(), dtype_of<T>, where, shown, fits, places...)};
  };
  if (options.causal) {
    const auto places = iota(q.graph(), static_cast<std::int32_t>(q.shape()[-2]), where);
    hide([](Symbol query, Symbol key) { return key <= query; }, expand_dims(places, 1, where), places);
  }
  if (options.mask) {
    const TensorType both[] = {fits.any().type(), options.mask->any().type()};
    if (!(detail::broadcast_all(both) == fits.shape()))
      refuse("a mask " + options.mask->any().type().text() + " does not broadcast to their products " + fits.any().type().text());
    hide([](Symbol seen) { return seen != 0; }, *options.mask);
  }
  return matmul(dropout(softmax(fits, -1, where), options.dropout, where), v, where);
}

}  // namespace replicator
