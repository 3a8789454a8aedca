// SPDX-License-Identifier: Apache-2.0
// The optimizer RMSProp, optionally centred and with momentum, by PyTorch's formulas.
// Sources: Tieleman and Hinton, "Lecture 6.5: rmsprop", 2012; Graves, "Generating sequences with recurrent neural
// networks", 2013.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/rate.hpp>
#include <replicator/nn/optimizers/update.hpp>

namespace replicator::nn {

struct RmspropOptions {
  Rate learning_rate = 0.01;
  double alpha = 0.99;        // decay of the mean of the squares, in [0, 1)
  double epsilon = 1e-8;      // added to the root of the mean square, above 0
  double momentum = 0;        // factor of m in each update, at least 0
  bool centered = false;      // divides by the estimated standard deviation instead of the root of the mean square
  double weight_decay = 0;    // weight_decay p is added to the gradient
  bool decay_vectors = true;  // false: no decay for variables of rank 0 and 1 (biases, gains of batch norm)
};

// g = gradient + weight_decay p;  v = alpha v + (1 - alpha) g g;  a = alpha a + (1 - alpha) g
// m = momentum m + g / (sqrt(centered ? v - a a : v) + epsilon);  p -= learning_rate m
// v, a and m are the variables "<name>/mean_square", "<name>/mean_gradient" (if centered) and "<name>/momentum" (with
// momentum): mirrored, initially 0, and float32 for bfloat16 variables.
class Rmsprop : public UpdatesVariables<Rmsprop> {
 public:
  // Throws BuildError for options that are negative, not finite, or out of the ranges above.
  explicit Rmsprop(RmspropOptions options) : options_{std::move(options)} {
    detail::require_rate("rmsprop", options_.learning_rate);
    detail::require_fraction("rmsprop", "alpha", options_.alpha);
    detail::require_positive("rmsprop", "epsilon", options_.epsilon);
    detail::require_not_negative("rmsprop", "momentum", options_.momentum);
    detail::require_not_negative("rmsprop", "weight_decay", options_.weight_decay);
  }

  // Updates variables of one element type, whole or in parts, without communication (like apply_gradients). `compute`:
  // the type in which their elements are computed.
  template <class = void>
  void update_elements(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const;

 private:
  // (p, gradient, rate, v[, a][, m]) -> (p, v[, a][, m])
  template <class = void>
  replicator::detail::ExpressionPtr formula(DType compute, double decay) const {
    const double alpha = options_.alpha, momentum = options_.momentum;
    const std::size_t inputs = 4 + (options_.centered ? 1 : 0) + (momentum > 0 ? 1 : 0);
    return detail::record_update(compute, inputs, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      const Symbol p = x[0], rate = x[2], g = decay > 0 ? x[1] + decay * p : x[1];
      std::vector<Symbol> slots{alpha * x[3] + (1 - alpha) * (g * g)};
      if (options_.centered) slots.push_back(alpha * x[4] + (1 - alpha) * g);
      const Symbol variance = options_.centered ? max(slots[0] - slots[1] * slots[1], 0) : slots[0];  // rounding may make it negative
      Symbol m = g / (sqrt(variance) + options_.epsilon);
      if (momentum > 0) slots.push_back(m = momentum * x.back() + m);
      slots.insert(slots.begin(), p - rate * m);
      return slots;
    });
  }

  RmspropOptions options_;
};

template <class>
void Rmsprop::update_elements(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const {
  const AnyTensor rate = options_.learning_rate.in(replica, compute, where);
  std::vector<std::string_view> slots{"mean_square"};
  if (options_.centered) slots.push_back("mean_gradient");
  if (options_.momentum > 0) slots.push_back("momentum");
  const replicator::detail::ExpressionPtr decayed = formula(compute, options_.weight_decay), plain = formula(compute, 0);
  for (const auto& one : all) {
    const bool decay = detail::decays(replica, one, options_.decay_vectors);
    detail::update(replica, one, {&rate, 1}, slots, decay ? decayed : plain, where);
  }
}

// nn::rmsprop({.learning_rate = 1e-3, .momentum = 0.9}).minimize(replica, loss);
inline Rmsprop rmsprop(RmspropOptions options, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return Rmsprop{std::move(options)}; });
}

}  // namespace replicator::nn
