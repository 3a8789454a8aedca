// SPDX-License-Identifier: Apache-2.0
// The optimizer LAMB, for large batches: Adam with a learning rate for each layer.
// Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", 2020, algorithm 2.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/rate.hpp>
#include <replicator/nn/optimizers/update.hpp>

namespace replicator::nn {

struct LambOptions {
  Rate learning_rate = 0.001;
  double beta1 = 0.9;          // decay of the mean of the gradients, in [0, 1)
  double beta2 = 0.999;        // decay of the mean of their squares, in [0, 1)
  double epsilon = 1e-6;       // added to the root of the mean square, above 0
  double weight_decay = 0.01;  // weight_decay p is added to the update
  bool adapt_vectors = false;  // false: variables of rank 0 and 1 (biases, gains of norms) get Adam's update without decay
};

// The t-th update of a variable p (t = 1 in the first update):
//   m = beta1 m + (1 - beta1) gradient;  v = beta2 v + (1 - beta2) gradient gradient
//   u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p
//   p -= learning_rate |p| / |u| u, with 1 for the quotient if either norm is 0
// m, v and t are stored as by Adam.
class Lamb : public UpdatesVariables<Lamb> {
 public:
  // Throws BuildError for options that are not finite or out of the ranges above, and for a negative rate or decay.
  explicit Lamb(LambOptions options) : options_{std::move(options)} {
    detail::require_rate("lamb", options_.learning_rate);
    detail::require_fraction("lamb", "beta1", options_.beta1);
    detail::require_fraction("lamb", "beta2", options_.beta2);
    detail::require_positive("lamb", "epsilon", options_.epsilon);
    detail::require_not_negative("lamb", "weight_decay", options_.weight_decay);
  }

  // Updates variables of one element type, without communication (like apply_gradients). `compute`: the type in which
  // their elements are computed.
  template <class = void>
  void update_variables(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const;

 private:
  // t -> (bias-correcting factor of m, that of sqrt(v))
  template <class = void>
  replicator::detail::ExpressionPtr bias_formula() const {
    return detail::record_update(DType::float64, 1, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      const Symbol t = x[0];
      return {1 / (1 - pow(t.number(options_.beta1), t)), 1 / sqrt(1 - pow(t.number(options_.beta2), t))};
    });
  }

  // (rate, sum of squares of p, sum of squares of u) -> the variable's own rate
  template <class = void>
  static replicator::detail::ExpressionPtr ratio_formula() {
    return detail::record_update(DType::float64, 3, [](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      const Symbol p = sqrt(x[1]), u = sqrt(x[2]);
      return {x[0] * select(p > 0 && u > 0, p / u, 1)};
    });
  }

  // (p, gradient, factor of m, factor of sqrt(v), m, v) -> (u, m, v)
  template <class = void>
  replicator::detail::ExpressionPtr formula(DType compute, double decay) const {
    return detail::record_update(compute, 6, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      const Symbol m = options_.beta1 * x[4] + (1 - options_.beta1) * x[1];
      const Symbol v = options_.beta2 * x[5] + (1 - options_.beta2) * (x[1] * x[1]);
      const Symbol u = m * x[2] / (sqrt(v) * x[3] + options_.epsilon);
      return {decay > 0 ? u + decay * x[0] : u, m, v};
    });
  }

  // (p, rate, u) -> p
  template <class = void>
  static replicator::detail::ExpressionPtr move_formula(DType compute) {
    return detail::record_update(compute, 3, [](const std::vector<Symbol>& x) -> std::vector<Symbol> { return {x[0] - x[1] * x[2]}; });
  }

  LambOptions options_;
};

template <class>
void Lamb::update_variables(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const {
  const AnyTensor rate = options_.learning_rate.in(replica, compute, where);
  if (all.empty()) return;
  const std::vector<std::string_view> slots{"first_moment", "second_moment"};
  Graph& graph = replica.graph();
  const AnyTensor count = detail::count_update(graph, all[0].variable, "updates", where);
  const auto bias = detail::scalars_of(graph, bias_formula(), {&count, 1}, compute, where);
  const replicator::detail::ExpressionPtr ratio = ratio_formula(), move = move_formula(compute);
  const replicator::detail::ExpressionPtr decayed = formula(compute, options_.weight_decay), plain = formula(compute, 0);
  for (const auto& one : all) {
    const bool adapt = detail::decays(replica, one, options_.adapt_vectors);
    const AnyTensor p = graph.read(one.variable, where);
    const AnyTensor u = detail::advance(graph, one, bias, slots, adapt ? decayed : plain, compute, where);
    AnyTensor own = rate;
    if (adapt) {
      const AnyTensor inputs[] = {rate, detail::sum_of_squares(p, where), detail::sum_of_squares(u, where)};
      own = detail::scalars_of(graph, ratio, inputs, compute, where)[0];
    }
    const AnyTensor operands[] = {p, own, u};
    const auto node = add_compute(graph, Map{move, p.shape(), {p.dtype()}}, operands, where);
    graph.assign(one.variable, {node, 0}, where);
  }
}

// nn::lamb({.learning_rate = nn::warmup_cosine(2e-3, 1000, 20000)}).minimize(replica, loss);
inline Lamb lamb(LambOptions options, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return Lamb{std::move(options)}; });
}

}  // namespace replicator::nn
