// SPDX-License-Identifier: Apache-2.0
// Gradient clipping by the global norm of all gradients.
// Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013, algorithm 1.
#pragma once

#include <limits>
#include <source_location>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/update.hpp>
#include <replicator/ops/elementwise.hpp>

namespace replicator::nn {

// The square root of the sum of squares of all elements of all tensors: a scalar of the type in which T is computed.
// The squares are summed within each tensor, then over the tensors in the given order.
template <class = void>
AnyTensor global_norm(const std::vector<AnyTensor>& tensors, Location where) {
  AnyTensor total;
  for (const auto& tensor : tensors) {
    const AnyTensor squares = detail::sum_of_squares(tensor, where);
    total = total ? apply(replicator::detail::ScalarOp::add, {total, squares}, where) : squares;
  }
  return apply(replicator::detail::ScalarOp::square_root, {total}, where);
}

// Wraps an optimizer: if the global norm of the gradients exceeds `most`, all gradients shrink by one factor.
//   gradient *= min(1, most / (norm + 1e-6))     as PyTorch's clip_grad_norm_
// Applies to the mean gradients over the replicas. If the norm is not finite, all gradients become NaN. The squares are
// summed in the type in which T is computed.
template <class Optimizer>
class Clipped : public Minimizes<Clipped<Optimizer>> {
 public:
  // Throws BuildError unless `most` is a finite number above 0.
  Clipped(Optimizer inner, double most) : inner_{std::move(inner)}, most_{most} { detail::require_positive("clipped", "the largest norm", most); }

  template <FloatingElement T>
  requires AppliesGradients<Optimizer, T>
  void apply_gradients(ReplicaContext& replica, const std::vector<Variable<T>>& variables,
                       const std::vector<Tensor<T>>& gradients,
                       std::source_location where = std::source_location::current()) const {
    if (gradients.empty()) return;
    const AnyTensor norm = global_norm({gradients.begin(), gradients.end()}, where);
    const DType dtype = norm.dtype();
    const auto shrink = [&](auto n) { return select(n - n == 0, min(most_ / (n + 1e-6), 1), std::numeric_limits<double>::quiet_NaN()); };
    const AnyTensor factor = replicator::detail::map_at(replica.graph(), dtype, where, shrink, norm);
    std::vector<Tensor<T>> clipped;
    for (const auto& gradient : gradients)
      clipped.emplace_back(replicator::detail::map_at(
          replica.graph(), dtype_of<T>, where, [](auto g, auto f) { return g * f; }, gradient, factor));
    inner_.apply_gradients(replica, variables, clipped, where);
  }

 private:
  Optimizer inner_;
  double most_;
};

// nn::clipped(nn::adamw({.learning_rate = 3e-4}), 1.0).minimize(replica, loss);
template <class Optimizer>
Clipped<Optimizer> clipped(Optimizer optimizer, double most, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return Clipped<Optimizer>{std::move(optimizer), most}; });
}

}  // namespace replicator::nn
