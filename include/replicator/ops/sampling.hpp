// SPDX-License-Identifier: Apache-2.0
// Samples of classes, new in every step and on every replica. The random bits are those of ops/random.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>

#include <replicator/core/number_text.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/movement/axis.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/stop_gradient.hpp>
#include <replicator/ops/top_k.hpp>

namespace replicator {

// -log(-log(u)) with u uniform: standard Gumbel noise, from -3 (float32) to 17.
template <FloatingElement T = float>
Tensor<T> gumbel(Graph& graph, const Shape& shape, const RandomOptions& options = {},
                 std::source_location where = std::source_location::current()) {
  const AnyTensor u = detail::random_node(graph, Distribution::uniform, {dtype_of<T>, shape}, options, where);
  // u is a multiple of 2^-24 or 2^-53. The 0 stands for all numbers up to the next multiple, so it is replaced by their middle.
  const double least = dtype_of<T> == DType::float64 ? 0x1p-54 : 0x1p-25;
  return Tensor<T>{detail::map_at(
      graph, dtype_of<T>, where, [&](Symbol v) { return -log(-log(max(v, least))); }, u)};
}

// Draws a class from each distribution: the index along the axis (the last by default) is i with probability softmax(logits)_i.
// The axis disappears. The logits need not be normalised. Minus infinity is never drawn, unless all logits are minus infinity.
// Throws BuildError for an axis that does not exist. Source: Gumbel, "Statistical theory of extreme values", 1954.
template <FloatingElement T>
Tensor<std::int32_t> categorical(Tensor<T> logits, std::int64_t axis = -1,
                                 std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return categorical(cast<float>(logits, where), axis, where);
  const AnyTensor noise = gumbel<T>(logits.graph(), logits.shape(), {}, where);
  const Tensor<T> perturbed{apply(detail::ScalarOp::add, {logits.any(), noise}, where)};
  return argmax(perturbed, axis, where);
}

// Whole numbers from low to high - 1, each equally probable. Throws BuildError unless low < high, with at most 2^53 numbers
// between them.
template <std::integral I = std::int32_t>
requires(std::same_as<I, std::int32_t> || std::same_as<I, std::int64_t>) Tensor<I> randint(
    Graph& graph, const Shape& shape, I low, I high, const RandomOptions& options = {},
    std::source_location where = std::source_location::current()) {
  const auto numbers = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (low >= high || numbers > std::uint64_t{1} << 53)
    throw BuildError{"randint at " + Location{where}.text() + ": asked for numbers from " + std::to_string(low) + " to before " + std::to_string(high) +
                     ": there must be at least one, and at most 2^53"};
  const auto n = static_cast<double>(numbers);
  const AnyTensor u = detail::random_node(graph, Distribution::uniform, {DType::float64, shape}, options, where);
  const Tensor<double> steps{detail::map_at(
      graph, DType::float64, where, [n](Symbol v) { return min(floor(v * n), n - 1); }, u)};
  return Tensor<I>{apply(detail::ScalarOp::add, cast<I>(steps, where), low, where)};
}

// The numbers 0 to n - 1 in a random order. It sorts random float64 numbers. Two of them are equal so rarely that no order is likelier than another.
inline Tensor<std::int32_t> permutation(Graph& graph, std::int32_t n, const RandomOptions& options = {},
                                        std::source_location where = std::source_location::current()) {
  if (n < 1) throw BuildError{"permutation at " + Location{where}.text() + ": asked for " + std::to_string(n) + " numbers: ask for at least one"};
  return top_k(uniform<double>(graph, {n}, 0, 1, options, where), n, -1, where).indices;
}

struct GumbelSoftmaxOptions {
  double temperature = 1;
  bool hard = false;  // one-hot samples with the gradient of the soft ones ("straight-through")
  std::int64_t axis = -1;
};

// softmax((logits + Gumbel noise) / temperature): a sample with a gradient for the logits. Same shape.
// Throws BuildError for an axis that does not exist, or a temperature that is not positive.
// Source: Jang, Gu, Poole, "Categorical reparameterization with Gumbel-softmax", 2017; Maddison, Mnih, Teh, 2017.
template <FloatingElement T>
Tensor<T> gumbel_softmax(Tensor<T> logits, const GumbelSoftmaxOptions& options = {},
                         std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(gumbel_softmax(cast<float>(logits, where), options, where), where);
  if (!(options.temperature > 0))
    throw BuildError{"gumbel_softmax at " + Location{where}.text() + ": the temperature must be more than 0, found " +
                     detail::number_text(options.temperature)};
  Graph& graph = logits.graph();
  const Tensor<T> perturbed{detail::map_at(
      graph, dtype_of<T>, where, [&](Symbol x, Symbol g) { return (x + g) / options.temperature; }, logits,
      gumbel<T>(graph, logits.shape(), {}, where))};
  const Tensor<T> soft = softmax(perturbed, options.axis, where);
  if (!options.hard) return soft;

  const Shape& shape = logits.shape();
  const auto axis = static_cast<std::size_t>(detail::require_axis(options.axis, shape.rank()));
  Shape numbers, kept = shape;
  for (std::size_t i = axis; i < shape.rank(); ++i) numbers.push_back(i == axis ? shape[i] : 1);
  kept[axis] = 1;
  const AnyTensor classes = iota(graph, static_cast<std::int32_t>(shape[axis]), where);
  const AnyTensor drawn = argmax(soft, options.axis, where);
  // The soft sample minus itself is exactly 0.
  return Tensor<T>{detail::map_at(
      graph, dtype_of<T>, where,
      [](Symbol d, Symbol c, Symbol s, Symbol fixed) { return select(d == c, 1 + (s - fixed), s - fixed); },
      reshape(drawn, kept, where), reshape(classes, numbers, where), soft, stop_gradient(soft, where))};
}

}  // namespace replicator
