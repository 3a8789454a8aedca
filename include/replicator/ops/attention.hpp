// SPDX-License-Identifier: Apache-2.0
// Attention: for each query, the mean of the values, weighted by how well their keys fit the query.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/core/real.hpp>
#include <replicator/graph/gradients.hpp>
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

inline double attention_scale(const AttentionOptions& options, const Shape& queries) {
  return options.scale.value_or(1 / detail::square_root(static_cast<double>(queries[-1])));
}

// The shape of the products of queries and keys, [.., T, S].
inline std::optional<Shape> attention_weights(Shape queries, Shape keys) {
  queries[-1] = 1;
  keys[-1] = std::exchange(keys[-2], 1);
  return broadcast(queries, keys);
}

// Dropout of Attention draws so many numbers for a query. It is a multiple of four, and numbers beyond the keys are not used: a row
// then begins with a block of the generator, and the kernels draw the numbers of a tile alone.
inline std::int64_t numbers_for_keys(std::int64_t keys) { return (keys + 3) / 4 * 4; }
// The numbers for weights of this shape.
inline Random attention_dropout(Shape weights, std::uint32_t trace_index) {
  weights[-1] = numbers_for_keys(weights[-1]);
  return {Distribution::uniform, {DType::float32, weights}, trace_index};
}

// x [.., T, S] where the queries `first` to first + T of a sequence see the keys, and minus infinity elsewhere.
template <FloatingElement T>
Tensor<T> where_seen(Tensor<T> x, std::int64_t first, const AttentionOptions& options, std::source_location where) {
  Graph& graph = x.graph();
  const auto hide = [&](auto seen, const auto&... places) {
    const auto shown = [&](Symbol value, auto... p) { return select(seen(p...), value, -std::numeric_limits<double>::infinity()); };
    x = Tensor<T>{map_at(graph, dtype_of<T>, where, shown, x, places...)};
  };
  if (options.causal) {
    const auto queries = iota(graph, static_cast<std::int32_t>(x.shape()[-2]), where), keys = iota(graph, static_cast<std::int32_t>(x.shape()[-1]), where);
    hide([first](Symbol query, Symbol key) { return key <= query + first; }, expand_dims(queries, 1, where), keys);
  }
  if (options.mask) hide([](Symbol seen) { return seen != 0; }, *options.mask);
  return x;
}

// The scaled products of queries `first` to first + q.shape()[-2] of a sequence with the keys. Hidden ones are minus infinity.
template <FloatingElement T>
Tensor<T> attention_products(Tensor<T> q, Tensor<T> k, std::int64_t first, const AttentionOptions& options, std::source_location where) {
  const double scale = attention_scale(options, q.shape());
  const auto scaled = [scale](Symbol x) { return x * scale; };
  const Tensor<T> fits{map_at(q.graph(), dtype_of<T>, where, scaled, matmul(q, k, {.transpose_b = true}, where))};  // [.., T, S]
  return where_seen(fits, first, options, where);
}

// The elements begin to end of an axis that counts from the end, unless x is broadcast along it.
template <Element T>
Tensor<T> cut(Tensor<T> x, std::int64_t axis, std::int64_t begin, std::int64_t end, std::source_location where) {
  const bool broadcast = static_cast<std::int64_t>(x.shape().rank()) < -axis || x.shape()[axis] == 1;
  return broadcast || (begin == 0 && end == x.shape()[axis]) ? x : slice_axis(x, axis, begin, end, where);
}

// The numbers that decide which weights are dropped. Absent: they are drawn where they are needed.
using DropoutNumbers = std::optional<Tensor<float>>;

// The attention of those queries.
template <FloatingElement T>
Tensor<T> attend(Tensor<T> q, Tensor<T> k, Tensor<T> v, std::int64_t first, const AttentionOptions& options, const DropoutNumbers& numbers,
                 std::source_location where) {
  const Tensor<T> products = attention_products(q, k, first, options, where);
  Tensor<T> weights = softmax(products, -1, where);
  if (options.mask) {  // The weights are NaN where a query sees no key, or products of minus infinity only.
    const auto or_none = [](Symbol weight, Symbol most) { return select(most == -std::numeric_limits<double>::infinity(), 0, weight); };
    weights = Tensor<T>{map_at(q.graph(), dtype_of<T>, where, or_none, weights, max(products, Axes{-1}.kept(), where))};
  }
  weights = numbers ? drop(weights, cut(*numbers, -1, 0, k.shape()[-2], where).any(), options.dropout, where) : dropout(weights, options.dropout, where);
  return matmul(weights, v, where);
}

// Causal attention in blocks of queries. The keys of a block are the first ones of the next block's.
template <FloatingElement T>
Tensor<T> attend_in_blocks(Tensor<T> q, Tensor<T> k, Tensor<T> v, const AttentionOptions& options, const DropoutNumbers& numbers, std::source_location where) {
  const std::int64_t queries = q.shape()[-2], count = (queries + causal_block - 1) / causal_block;
  std::vector<Tensor<T>> blocks;
  for (std::int64_t i = count; i-- > 0;) {
    const std::int64_t first = queries * i / count, end = queries * (i + 1) / count;
    AttentionOptions block = options;
    DropoutNumbers own = numbers;
    if (block.mask) block.mask = cut(cut(*block.mask, -2, first, end, where), -1, 0, end, where);
    if (own) own = cut(*own, -2, first, end, where);
    blocks.insert(blocks.begin(), attend(slice_axis(q, -2, first, end, where), k, v, first, block, own, where));
    if (i > 0) k = slice_axis(k, -2, 0, first, where), v = slice_axis(v, -2, 0, first, where);
  }
  return concat(blocks, -2, where);
}

// Attention in terms of other operations.
template <FloatingElement T>
Tensor<T> attend_in_parts(Tensor<T> q, Tensor<T> k, Tensor<T> v, const AttentionOptions& options, const DropoutNumbers& numbers, std::source_location where) {
  if (options.causal && q.shape()[-2] > causal_block) return attend_in_blocks(q, k, v, options, numbers, where);
  return attend(q, k, v, 0, options, numbers, where);
}

// Attention in float32 as one node. Inputs: q [.., T, D], k [.., S, D], v [.., S, E], and perhaps a mask that broadcasts to
// [.., T, S]. The leading axes of k and v are equal, and broadcast to those of q. Outputs: [.., T, E], and the logarithm of the sum
// of exp(product) for each query [.., T], for the gradient.
struct Attention {
  static constexpr std::string_view name = "attention";
  bool causal = false;
  double scale = 1;
  double dropout = 0;
  std::uint32_t trace_index = 0;  // of the random numbers, where weights are dropped

  template <class V>
  void describe(V& v) const {
    v("causal", causal);
    v("scale", scale);
    v("dropout", dropout);
    v("trace_index", trace_index);
  }
  bool varies() const { return dropout > 0; }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    TensorType y = inputs[0], log_sums = inputs[0];
    y.shape[-1] = inputs[2].shape[-1];
    log_sums.shape = Shape{std::span{inputs[0].shape.begin(), inputs[0].shape.rank() - 1}};
    return {y, log_sums};
  }
  template <class = void>
  std::vector<AnyTensor> expand(const ExpansionContext& at) const;
  template <class = void>
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
  // `of_depth` and `of_features` products read the queries and keys, or the values.
  double work(std::span<const TensorType> inputs, double of_depth = 1, double of_features = 1) const {
    const double keys = static_cast<double>(inputs[1].shape[-2]), seen = causal ? (keys + 1) / 2 : keys;
    const double depth = static_cast<double>(inputs[0].shape[-1]), features = static_cast<double>(inputs[2].shape[-1]);
    return 2 * static_cast<double>(inputs[0].shape.elements()) / depth * seen * (of_depth * depth + of_features * features);
  }
};

// The gradient of Attention. Inputs: q, k, v, both outputs, the gradient of the first output, and perhaps the mask. Outputs: the
// gradients of q, k, v.
struct AttentionGradient {
  static constexpr std::string_view name = "attention gradient";
  Attention of;

  template <class V>
  void describe(V& v) const {
    of.describe(v);
  }
  bool varies() const { return of.varies(); }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0], inputs[1], inputs[2]}; }
  template <class = void>
  std::vector<AnyTensor> expand(const ExpansionContext& at) const;
  template <class = void>
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
  double work(std::span<const TensorType> inputs) const { return of.work(inputs, 3, 2); }
};

// While it lives, new nodes have this source line, and products are computed in float32.
struct PartsScope {
  ScopedValue<std::optional<Location>> line;
  ScopedValue<DType> products;
  PartsScope(Graph& graph, Location where) : line{graph.line(), where}, products{graph.products(), DType::float32} {}
};

// New names for tensors. Derivatives by one of them do not flow into another that depends on it.
template <class = void>
std::vector<AnyTensor> renamed(Graph& graph, std::span<const AnyTensor> xs, Location where) {
  std::vector<AnyTensor> result;
  for (const auto& x : xs) result.push_back(compute(graph, Reshape{x.shape()}, {x}, where));
  return result;
}

// `masks` is the mask, or empty.
template <class = void>
AttentionOptions options_of(const Attention& op, std::span<const AnyTensor> masks) {
  AttentionOptions options{.causal = op.causal, .scale = op.scale, .dropout = op.dropout};
  if (!masks.empty()) options.mask = Tensor<bool>{masks[0]};
  return options;
}
// The parts of attention of q, k, v. They drop the weights that the kernels drop.
template <class = void>
AnyTensor parts_of(const Attention& op, std::span<const AnyTensor> in, std::span<const AnyTensor> masks, Location where) {
  const PartsScope scope{in[0].graph(), where};
  DropoutNumbers numbers;
  if (op.dropout > 0) numbers.emplace(compute(in[0].graph(), attention_dropout(*attention_weights(in[0].shape(), in[1].shape()), op.trace_index), {}, where));
  return attend_in_parts(Tensor<float>{in[0]}, Tensor<float>{in[1]}, Tensor<float>{in[2]}, options_of(op, masks), numbers, std::source_location::current());
}
// The parts of its gradient by q, k, v, where the gradient of its result is dy. They must be renamed.
template <class = void>
std::vector<AnyTensor> parts_of_gradient(const Attention& op, std::span<const AnyTensor> in, AnyTensor dy, std::span<const AnyTensor> masks, Location where) {
  Differentiation<> differentiation{parts_of(op, in, masks, where), in.first(3), where, dy};
  return {differentiation.of(in[0]), differentiation.of(in[1]), differentiation.of(in[2])};
}

template <class>
std::vector<AnyTensor> Attention::expand(const ExpansionContext& at) const {
  const auto named = renamed(at.graph, at.inputs.first(3), at.where);  // as the gradient does, so that both share their parts
  const auto masks = at.inputs.subspan(3);
  const PartsScope scope{at.graph, at.where};
  const auto products = attention_products(Tensor<float>{named[0]}, Tensor<float>{named[1]}, 0, options_of(*this, masks), std::source_location::current());
  return {parts_of(*this, named, masks, at.where), log_sum_exp(products)};
}
template <class>
std::vector<AnyTensor> Attention::gradient(const GradientContext& at) const {
  const auto& in = at.inputs;
  std::vector<AnyTensor> operands{in[0], in[1], in[2], at.outputs[0], at.outputs[1], at.upstream[0]};
  operands.insert(operands.end(), in.begin() + 3, in.end());
  const auto node = add_compute(at.graph, AttentionGradient{*this}, operands, at.where);
  return {at.graph.tensor(node, 0), at.graph.tensor(node, 1), at.graph.tensor(node, 2)};
}
template <class>
std::vector<AnyTensor> AttentionGradient::expand(const ExpansionContext& at) const {
  return parts_of_gradient(of, renamed(at.graph, at.inputs.first(3), at.where), at.inputs[5], at.inputs.subspan(6), at.where);
}
// As the gradient of the parts. Their results depend on q, k, v and dy; what Attention computed from these counts as such.
template <class>
std::vector<AnyTensor> AttentionGradient::gradient(const GradientContext& at) const {
  const AnyTensor free[] = {at.inputs[0], at.inputs[1], at.inputs[2], at.inputs[5]};
  const auto named = renamed(at.graph, free, at.where);
  const auto parts = parts_of_gradient(of, named, named[3], at.inputs.subspan(6), at.where);
  std::vector<AnyTensor> result(at.inputs.size());
  for (std::size_t i = 0; i < 3; ++i) {
    if (!at.upstream[i]) continue;
    Differentiation<> differentiation{parts[i], named, at.where, at.upstream[i]};
    for (const std::size_t x : {0, 1, 2, 3}) {
      auto& sum = result[x < 3 ? x : 5];
      if (const auto* arrived = differentiation.arrived(named[x])) sum = sum ? apply(ScalarOp::add, {sum, *arrived}, at.where) : *arrived;
    }
  }
  return result;
}

// Whether Attention takes these operands.
template <FloatingElement T>
bool is_one_node(Tensor<T> q, Tensor<T> k, Tensor<T> v, const AttentionOptions& options) {
  if (!std::is_same_v<T, float> || q.graph().products() != DType::float32) return false;
  if (q.shape().elements() == 0 || k.shape().elements() == 0 || v.shape().elements() == 0) return false;
  const Shape heads = batch_axes(q.shape()), weights = *attention_weights(q.shape(), k.shape());
  return batch_axes(k.shape()) == batch_axes(v.shape()) && batch_axes(weights) == heads &&
         (options.dropout == 0 || attention_dropout(weights, 0).type.shape.elements() < most_random_numbers);
}

}  // namespace detail

// softmax(q k^T scale) v: q [.., T, D], k [.., S, D], v [.., S, E] -> [.., T, E]. The leading axes (batch, heads) broadcast as in
// NumPy. A query whose keys are all hidden by the mask gives 0, and no gradient. With a mask, one that sees only products of minus
// infinity gives 0, too.
//
// Queries in groups share a head of keys and values: q [n, heads, group, T, D], k and v [n, heads, 1, S, D].
//
// On CPUs with AVX2, float32 attention is one operation where the leading axes of k and v are equal, and those of q are the larger
// ones. It keeps no weights, so its memory is linear in T and S, and it leaves out tiles of 64 x 64 weights that are all hidden.
// Elsewhere all T S weights of a head are kept for the backward pass, unless rp::recompute avoids that. Long causal attention then
// leaves out most of the hidden weights: it is computed in blocks of queries.
// Throws BuildError where the shapes do not fit, and for an impossible dropout. Source: Vaswani et al., "Attention is all you need", 2017, section 3.2.1.
template <FloatingElement T>
Tensor<T> attention(Tensor<T> q, Tensor<T> k, Tensor<T> v, const AttentionOptions& options = {},
                    std::source_location where = std::source_location::current()) {
  const auto refuse = [&](const std::string& must) {
    throw BuildError{detail::call_text(q.graph().replica(), "attention", where) + ": found queries " +
                     q.any().type().text() + ", keys " + k.any().type().text() + " and values " + v.any().type().text() + ": " + must};
  };
  if (q.shape().rank() < 2 || k.shape().rank() < 2 || v.shape().rank() < 2 || q.shape()[-1] != k.shape()[-1] || k.shape()[-2] != v.shape()[-2])
    refuse("they must be [.., T, D], [.., S, D] and [.., S, E]");
  if (options.causal && q.shape()[-2] != k.shape()[-2]) refuse("causal attention takes as many keys as queries");
  const auto products = detail::attention_weights(q.shape(), k.shape());  // [.., T, S]
  if (!products || !broadcast(detail::batch_axes(*products), detail::batch_axes(v.shape())))
    refuse("their axes before the last two cannot be broadcast together; make the extents equal or 1");
  if (!(options.dropout >= 0 && options.dropout < 1)) refuse(".dropout is " + detail::number_text(options.dropout) + ", which must be at least 0 and less than 1");
  if (options.mask) {
    const Shape& mask = options.mask->shape();
    if (const auto both = broadcast(*products, mask); !both || *both != *products)
      refuse("a mask " + options.mask->any().type().text() + " does not broadcast to their products " + TensorType{dtype_of<T>, *products}.text() +
             (products->rank() == 4 && mask == Shape{(*products)[0], (*products)[3]} ? "; rp::reshape it to " + Shape{mask[0], 1, 1, mask[1]}.text() : ""));
  }
  if (!detail::is_one_node(q, k, v, options)) return detail::attend_in_parts(q, k, v, options, {}, where);
  const auto trace_index = options.dropout > 0 ? static_cast<std::uint32_t>(q.graph().nodes().size()) : 0;
  std::vector<AnyTensor> operands{q, k, v};
  if (options.mask) operands.push_back(*options.mask);
  const detail::Attention op{options.causal, detail::attention_scale(options, q.shape()), options.dropout, trace_index};
  const auto node = add_compute(q.graph(), op, operands, where);
  return Tensor<T>{q.graph().tensor(node, 0)};
}

}  // namespace replicator
