// SPDX-License-Identifier: Apache-2.0
// The optimizers Adam and AdamW, by PyTorch's formulas. AdamW applies weight decay apart from the gradient.
// Sources: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1; Loshchilov and Hutter,
// "Decoupled weight decay regularization", 2019, algorithm 2.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/rate.hpp>
#include <replicator/nn/optimizers/update.hpp>
#include <replicator/ops/adam_update.hpp>

namespace replicator::nn {

template <bool decoupled>
struct AdamOptionsOf {
  Rate learning_rate = 0.001;
  double beta1 = 0.9;     // decay of the mean of the gradients, in [0, 1)
  double beta2 = 0.999;   // decay of the mean of their squares, in [0, 1)
  double epsilon = 1e-8;  // added to the root of the mean square, above 0
  double weight_decay = decoupled ? 0.01 : 0;
  bool decay_vectors = true;  // false: no decay for variables of rank 0 and 1 (biases, gains of batch norm)
};
using AdamOptions = AdamOptionsOf<false>;  // adds weight_decay p to the gradient
using AdamwOptions = AdamOptionsOf<true>;  // subtracts learning_rate weight_decay p from p

// The t-th update of a variable p (t = 1 in the first update):
//   adamw: p -= learning_rate weight_decay p          adam: g = gradient + weight_decay p
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g
//   p -= learning_rate / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon)
// m and v are the variables "<name>/first_moment" and "<name>/second_moment": mirrored, initially 0, and float32 for
// bfloat16 variables.
// Variables that are updated together share one count t, in "<name of the first one>/updates".
class Adam : public UpdatesVariables<Adam> {
 public:
  // Throws BuildError for options that are not finite or out of the ranges above, and for a negative rate or decay.
  explicit Adam(AdamOptions options) : Adam{"adam", std::move(options)} {}
  explicit Adam(AdamwOptions options)
      : Adam{"adamw",
             {std::move(options.learning_rate), options.beta1, options.beta2, options.epsilon, options.weight_decay, options.decay_vectors}} {
    decoupled_ = true;
  }

  // Updates variables of one element type, whole or in parts, without communication (like apply_gradients). `compute`:
  // the type in which their elements are computed.
  template <class = void>
  void update_elements(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const;

 private:
  Adam(const char* name, AdamOptions options) : options_{std::move(options)} {
    detail::require_rate(name, options_.learning_rate);
    detail::require_fraction(name, "beta1", options_.beta1);
    detail::require_fraction(name, "beta2", options_.beta2);
    detail::require_positive(name, "epsilon", options_.epsilon);
    detail::require_not_negative(name, "weight_decay", options_.weight_decay);
  }

  // (the rate's operands..., t) -> (factor of p, bias-corrected rate of m, bias-correcting factor of sqrt(v))
  template <class = void>
  replicator::detail::ExpressionPtr scalar_formula(std::size_t of_rate) const {
    return detail::record_update(DType::float64, of_rate + 1, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      const Symbol rate = options_.learning_rate(x.front(), x[of_rate - 1]), t = x.back();
      const Symbol bias1 = 1 - pow(t.number(options_.beta1), t), bias2 = 1 - pow(t.number(options_.beta2), t);
      return {1 - rate * options_.weight_decay, rate / bias1, 1 / sqrt(bias2)};
    });
  }

  // (p, gradient, kept, rate, factor, m, v) -> (p, m, v)
  template <class = void>
  detail::UpdateFormula formula(DType compute, double decay) const {
    const replicator::detail::AdamConstants<double> c{options_.beta1, 1 - options_.beta1, options_.beta2, 1 - options_.beta2, options_.epsilon};
    const bool into_gradient = decay > 0 && !decoupled_, into_weight = decay > 0 && decoupled_;
    detail::UpdateFormula result = replicator::detail::adam_expression(compute, c, into_gradient ? decay : 0, into_weight);
    if (!into_gradient) result.of_float32 = AdamUpdate{c, into_weight};
    return result;
  }

  AdamOptions options_;
  bool decoupled_ = false;
};

template <class>
void Adam::update_elements(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const {
  if (all.empty()) return;
  const std::vector<std::string_view> slots{"first_moment", "second_moment"};
  std::vector<AnyTensor> operands = options_.learning_rate.operands(replica, where);
  const std::size_t of_rate = operands.size();
  operands.push_back(detail::count_update(replica, all[0].variable, "updates", where));
  const auto scalars = detail::scalars_of(replica, scalar_formula(of_rate), operands, compute, where);
  const detail::UpdateFormula decayed = formula(compute, options_.weight_decay), plain = formula(compute, 0);
  for (const auto& one : all) {
    const bool decay = detail::decays(replica, one, options_.decay_vectors);
    detail::update(replica, one, scalars, slots, decay ? decayed : plain, where);
  }
}

// nn::adam({.learning_rate = 3e-4}).minimize(replica, loss);
inline Adam adam(AdamOptions options, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return Adam{std::move(options)}; });
}
// nn::adamw({.learning_rate = 3e-4, .weight_decay = 0.1}).minimize(replica, loss);
inline Adam adamw(AdamwOptions options, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return Adam{std::move(options)}; });
}

}  // namespace replicator::nn
