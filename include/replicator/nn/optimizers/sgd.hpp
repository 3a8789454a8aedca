// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with optional momentum, Nesterov momentum and weight decay, by PyTorch's formulas.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/rate.hpp>
#include <replicator/nn/optimizers/update.hpp>

namespace replicator::nn {

struct SgdOptions {
  Rate learning_rate = 0.01;
  double momentum = 0;        // factor of m in each update, at least 0
  bool nesterov = false;      // needs momentum
  double weight_decay = 0;    // weight_decay p is added to the gradient
  bool decay_vectors = true;  // false: no decay for variables of rank 0 and 1 (biases, gains of batch norm)
};

// g = gradient + weight_decay p;  m = momentum m + g;  p -= learning_rate (nesterov ? g + momentum m : m)
// m is the variable "<name>/momentum" (mirrored, initially 0). Without momentum it does not exist.
class Sgd : public UpdatesVariables<Sgd> {
 public:
  // Throws BuildError for an option that is negative or not finite, and for nesterov without momentum.
  explicit Sgd(SgdOptions options) : options_{std::move(options)} {
    detail::require_rate("sgd", options_.learning_rate);
    detail::require_not_negative("sgd", "momentum", options_.momentum);
    detail::require_not_negative("sgd", "weight_decay", options_.weight_decay);
    if (options_.nesterov && options_.momentum == 0)
      throw BuildError{"sgd: nesterov needs a momentum, 0.9 for instance"};
  }

  // Updates variables of one element type, whole or in parts, without communication (like apply_gradients). `compute`:
  // the type in which their elements are computed.
  template <class = void>
  void update_elements(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const;

 private:
  // (p, gradient, rate[, m]) -> (p[, m])
  template <class = void>
  replicator::detail::ExpressionPtr formula(DType compute, double decay) const {
    const double momentum = options_.momentum;
    return detail::record_update(compute, momentum > 0 ? 4 : 3, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      const Symbol p = x[0], rate = x[2], g = decay > 0 ? x[1] + decay * p : x[1];
      if (momentum == 0) return {p - rate * g};
      const Symbol m = momentum * x[3] + g;
      return {p - rate * (options_.nesterov ? g + momentum * m : m), m};
    });
  }

  SgdOptions options_;
};

template <class>
void Sgd::update_elements(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const {
  const AnyTensor rate = options_.learning_rate.in(replica, compute, where);
  std::vector<std::string_view> slots;
  if (options_.momentum > 0) slots.push_back("momentum");
  const replicator::detail::ExpressionPtr decayed = formula(compute, options_.weight_decay), plain = formula(compute, 0);
  for (const auto& one : all) {
    const bool decay = detail::decays(replica, one, options_.decay_vectors);
    detail::update(replica, one, {&rate, 1}, slots, decay ? decayed : plain, where);
  }
}

// nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
inline Sgd sgd(SgdOptions options, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return Sgd{std::move(options)}; });
}

}  // namespace replicator::nn
