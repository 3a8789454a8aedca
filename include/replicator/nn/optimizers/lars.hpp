// SPDX-License-Identifier: Apache-2.0
// The optimizer LARS, for large batches: momentum with a learning rate for each layer.
// Source: You, Gitman, Ginsburg, "Large batch training of convolutional networks", 2017, algorithm 1.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/rate.hpp>
#include <replicator/nn/optimizers/update.hpp>

namespace replicator::nn {

struct LarsOptions {
  Rate learning_rate = 1.0;
  double momentum = 0.9;       // factor of m in each update, at least 0
  double weight_decay = 0;     // weight_decay p is added to the gradient
  double trust = 0.001;        // the part of its norm that a variable moves at a rate of 1, above 0
  bool adapt_vectors = false;  // false: variables of rank 0 and 1 (biases, gains of batch norm) get SGD's update without decay
};

// ratio = trust |p| / (|gradient| + weight_decay |p|), or 1 if either norm is 0
// m = momentum m + learning_rate ratio (gradient + weight_decay p);  p -= m
// m is the variable "<name>/momentum": mirrored, initially 0, and float32 for bfloat16 variables.
class Lars : public UpdatesVariables<Lars> {
 public:
  // Throws BuildError for options that are not finite, negative, or out of the ranges above.
  explicit Lars(LarsOptions options) : options_{std::move(options)} {
    detail::require_rate("lars", options_.learning_rate);
    detail::require_not_negative("lars", "momentum", options_.momentum);
    detail::require_not_negative("lars", "weight_decay", options_.weight_decay);
    detail::require_positive("lars", "trust", options_.trust);
  }

  // Updates variables of one element type, without communication (like apply_gradients). `compute`: the type in which
  // their elements are computed.
  template <class = void>
  void update_variables(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const;

 private:
  // (rate, sum of squares of p, sum of squares of the gradient) -> the variable's own rate
  template <class = void>
  replicator::detail::ExpressionPtr ratio_formula() const {
    return detail::record_update(DType::float64, 3, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      const Symbol p = sqrt(x[1]), gradient = sqrt(x[2]);
      const Symbol ratio = options_.trust * p / (gradient + options_.weight_decay * p);
      return {x[0] * select(p > 0 && gradient > 0, ratio, 1)};
    });
  }

  // (p, gradient, rate, m) -> (p, m)
  template <class = void>
  replicator::detail::ExpressionPtr formula(DType compute, double decay) const {
    return detail::record_update(compute, 4, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      const Symbol g = decay > 0 ? x[1] + decay * x[0] : x[1];
      const Symbol m = options_.momentum * x[3] + x[2] * g;
      return {x[0] - m, m};
    });
  }

  LarsOptions options_;
};

template <class>
void Lars::update_variables(ReplicaContext& replica, const std::vector<Trained>& all, DType compute, std::source_location where) const {
  const AnyTensor rate = options_.learning_rate.in(replica, compute, where);
  const std::vector<std::string_view> slots{"momentum"};
  const replicator::detail::ExpressionPtr ratio = ratio_formula(), decayed = formula(compute, options_.weight_decay), plain = formula(compute, 0);
  for (const auto& one : all) {
    const bool adapt = detail::decays(replica, one, options_.adapt_vectors);
    AnyTensor own = rate;
    if (adapt) {
      const AnyTensor p = replica.graph().read(one.variable, where);
      const AnyTensor inputs[] = {rate, detail::sum_of_squares(p, where), detail::sum_of_squares(one.gradient, where)};
      own = detail::scalars_of(replica, ratio, inputs, compute, where)[0];
    }
    detail::update(replica, one, {&own, 1}, slots, adapt ? decayed : plain, where);
  }
}

// nn::lars({.learning_rate = nn::warmup_cosine(9.0, 500, 9000), .weight_decay = 5e-5}).minimize(replica, loss);
inline Lars lars(LarsOptions options, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return Lars{std::move(options)}; });
}

}  // namespace replicator::nn
