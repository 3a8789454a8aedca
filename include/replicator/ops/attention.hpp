// SPDX-License-Identifier: Apache-2.0
// Attention: for each query, the mean of the values, weighted by how well their keys fit the query.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/ops/random.hpp>

namespace replicator {

struct AttentionOptions {
  bool causal = false;                    // query i sees keys 0 to i; there must be as many keys as queries
  std::optional<Tensor<bool>> mask = {};  // true where a query sees a key; broadcasts to [.., T, S]
  std::optional<double> scale = {};       // factor of the products; 1 / sqrt(D) unless given
  double dropout = 0;                     // probability that a weight is 0 in this step, as in rp::dropout
};

namespace detail {

// Causal attention with more queries is computed in blocks of about so many. A block leaves out the keys behind its last query.
inline constexpr std::int64_t causal_block = 256;

// The attention of queries `first` to first + q.shape()[-2] of a sequence.
template <FloatingElement T>
Tensor<T> attend(Tensor<T> q, Tensor<T> k, Tensor<T> v, std::int64_t first, const AttentionOptions& options, std::source_location where) {
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape()[-1])));
  const auto scaled = [scale](Symbol x) { return x * scale; };
  Tensor<T> fits{map_at(q.graph(), dtype_of<T>, where, scaled, matmul(q, k, {.transpose_b = true}, where))};  // [.., T, S]
  const auto hide = [&](auto seen, const auto&... places) {
    const auto shown = [&](Symbol x, auto... p) { return select(seen(p...), x, -std::numeric_limits<double>::infinity()); };
    fits = Tensor<T>{map_at(q.graph(), dtype_of<T>, where, shown, fits, places...)};
  };
  if (options.causal) {
    const auto queries = iota(q.graph(), static_cast<std::int32_t>(q.shape()[-2]), where), keys = iota(q.graph(), static_cast<std::int32_t>(k.shape()[-2]), where);
    hide([first](Symbol query, Symbol key) { return key <= query + first; }, expand_dims(queries, 1, where), keys);
  }
  if (options.mask) hide([](Symbol seen) { return seen != 0; }, *options.mask);
  return matmul(dropout(softmax(fits, -1, where), options.dropout, where), v, where);
}

// Causal attention in blocks of queries. The keys of a block are the first ones of the next block's.
template <FloatingElement T>
Tensor<T> attend_in_blocks(Tensor<T> q, Tensor<T> k, Tensor<T> v, const AttentionOptions& options, std::source_location where) {
  const auto cut = [&](auto x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
    const bool broadcast = static_cast<std::int64_t>(x.shape().rank()) < -axis || x.shape()[axis] == 1;
    return broadcast ? x : slice_axis(x, axis, begin, end, where);
  };
  const std::int64_t queries = q.shape()[-2], count = (queries + causal_block - 1) / causal_block;
  std::vector<Tensor<T>> blocks;
  for (std::int64_t i = count; i-- > 0;) {
    const std::int64_t first = queries * i / count, end = queries * (i + 1) / count;
    AttentionOptions block = options;
    if (block.mask) block.mask = cut(cut(*block.mask, -2, first, end), -1, 0, end);
    blocks.insert(blocks.begin(), attend(slice_axis(q, -2, first, end, where), k, v, first, block, where));
    if (i > 0) k = slice_axis(k, -2, 0, first, where), v = slice_axis(v, -2, 0, first, where);
  }
  return concat(blocks, -2, where);
}

}  // namespace detail

// softmax(q k^T scale) v: q [.., T, D], k [.., S, D], v [.., S, E] -> [.., T, E]. The leading axes (batch, heads) broadcast as in
// NumPy. A query that sees no key gives NaN. All T S weights of a head are kept for the backward pass; rp::recompute avoids that.
// Long causal attention leaves out most of the hidden weights: it is computed in blocks of queries.
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
  TensorType rows = q.any().type(), columns = k.any().type();  // of the products [.., T, S]
  rows.shape[-1] = 1, columns.shape[-1] = k.shape()[-2], columns.shape[-2] = 1;
  const TensorType fits{rows.dtype, detail::broadcast_all(std::vector{rows, columns})};
  if (options.mask) {
    const TensorType both[] = {fits, options.mask->any().type()};
    if (!(detail::broadcast_all(both) == fits.shape))
      refuse("a mask " + options.mask->any().type().text() + " does not broadcast to their products " + fits.text());
  }
  if (options.causal && q.shape()[-2] > detail::causal_block) return detail::attend_in_blocks(q, k, v, options, where);
  return detail::attend(q, k, v, 0, options, where);
}

}  // namespace replicator
