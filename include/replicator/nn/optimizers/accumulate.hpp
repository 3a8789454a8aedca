// SPDX-License-Identifier: Apache-2.0
// Gradient accumulation: computes the gradients of a large batch in several parts, one after the other.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/ops/movement/axis.hpp>
#include <replicator/ops/movement/slice.hpp>

namespace replicator::nn {

// The replica's results: the means over the parts of the loss and of the gradients, one gradient for each variable.
template <FloatingElement T>
struct Accumulated {
  Tensor<T> loss;
  std::vector<Variable<T>> variables;
  std::vector<Tensor<T>> gradients;
};

namespace detail {

template <class = void>
void require_parts(const ReplicaContext& replica, int parts, const TensorType& input, Location where) {
  const std::string asked = replicator::detail::call_text(replica.id(), "accumulate", where) + ": asked for " + std::to_string(parts) + " parts";
  if (parts < 1) throw BuildError{asked + ": there must be at least 1"};
  if (input.shape.rank() == 0 || input.shape[0] % parts != 0)
    throw BuildError{asked + " of " + input.text() + ": the first extent must be a multiple of their number"};
}

template <FloatingElement T>
Tensor<T> added(Tensor<T> a, Tensor<T> b, Location where) {
  return Tensor<T>{apply(replicator::detail::ScalarOp::add, {a.any(), b.any()}, where)};
}
template <FloatingElement T>
Tensor<T> divided(Tensor<T> a, int parts, Location where) {
  return Tensor<T>{apply(replicator::detail::ScalarOp::divide, a.any(), parts, where)};
}

// Slice number `part` of `parts` equal slices along axis 0.
template <Element E>
Tensor<E> part_of(Tensor<E> x, int part, int parts, std::source_location where) {
  const auto rows = x.shape()[0] / parts;
  AxisValues begin(x.shape().rank(), 0), end(x.shape().begin(), x.shape().end());
  begin[0] = part * rows;
  end[0] = begin[0] + rows;
  return slice(x, std::move(begin), std::move(end), {}, where);
}

}  // namespace detail

// Splits each input along axis 0 into equal parts. Calls loss_fn(part of each input...) -> Tensor<T>, a scalar, for one
// part after the other. Takes the gradients for all trainable variables that the first part has read. Memory holds the
// intermediate values of one part at a time. Example:
//   const auto [loss, variables, gradients] = nn::accumulate(replica, 4, std::tuple{images, labels}, loss_fn);
//   nn::wrap_optimizer(nn::sgd({.learning_rate = 0.1})).apply_gradients(replica, variables, gradients);
// Sums are taken from the left, ((1 + 2) + 3) + ..., inside the replica, and divided by the number of parts. So a loss
// that is a mean over examples gets the gradient of the whole batch, up to rounding. Batch norm, however, sees parts.
// An optimizer then averages the gradients over the replicas.
// Throws BuildError if an input cannot be split, a loss is not one number, or no trainable variable was read.
template <Element... Inputs, std::invocable<Tensor<Inputs>...> LossFn>
auto accumulate(ReplicaContext& replica, int parts, const std::tuple<Tensor<Inputs>...>& inputs, LossFn loss_fn,
                std::source_location where = std::source_location::current()) {
  using Loss = std::invoke_result_t<LossFn&, Tensor<Inputs>...>;
  using T = typename Loss::element_type;
  std::apply([&](const auto&... x) { (detail::require_parts(replica, parts, x.any().type(), where), ...); }, inputs);
  std::optional<Accumulated<T>> sum;
  for (int part = 0; part < parts; ++part) {
    const Loss loss = std::apply([&](const auto&... x) { return loss_fn(detail::part_of(x, part, parts, where)...); }, inputs);
    if (!sum) {
      sum = Accumulated<T>{loss, replica.trainable_variables<T>(), {}};
      require_trainable(replica, sum->variables, "accumulate", where);
      sum->gradients = variable_gradients<T>(loss, sum->variables, where);
      continue;
    }
    sum->loss = detail::added(sum->loss, Tensor<T>{loss}, where);
    const auto gradients = variable_gradients<T>(loss, sum->variables, where);
    for (std::size_t i = 0; i < gradients.size(); ++i) sum->gradients[i] = detail::added(sum->gradients[i], gradients[i], where);
  }
  sum->loss = detail::divided(sum->loss, parts, where);
  for (auto& gradient : sum->gradients) gradient = detail::divided(gradient, parts, where);
  return *std::move(sum);
}

}  // namespace replicator::nn
