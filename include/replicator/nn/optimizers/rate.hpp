// SPDX-License-Identifier: Apache-2.0
// Learning rates that may change with the step. They are part of the graph, so nothing is traced again.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <replicator/nn/optimizers/update.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

// A number, or a formula of the number of steps done so far (0 in the first step). The formula is recorded as by
// rp::map:
//   nn::Rate rate = 0.1;
//   nn::Rate rate = [](rp::Symbol step) { return 0.1 / (1 + step); };
class Rate {
 public:
  Rate(double value) : value_{value} {}  // NOLINT: implicit on purpose
  template <std::invocable<Symbol> F>
  requires std::same_as<std::invoke_result_t<F&, Symbol>, Symbol> Rate(F formula)
      : formula_{std::move(formula)} {}  // NOLINT: implicit on purpose

  bool constant() const { return !formula_; }
  // Only for a constant rate.
  double value() const { return value_; }
  // The rate as a part of an expression. `step` is a floating number there.
  Symbol operator()(Symbol step) const { return formula_ ? formula_(step) : step.number(value_); }

  // The rate in this step, as a scalar of T. It is computed in double.
  template <FloatingElement T>
  Tensor<T> in(ReplicaContext& replica, std::source_location where = std::source_location::current()) const {
    return Tensor<T>{in(replica, dtype_of<T>, where)};
  }
  AnyTensor in(ReplicaContext& replica, DType dtype, std::source_location where) const {
    if (constant()) return fill(replica, {dtype, {}}, value_, where);
    const AnyTensor step = replica.step(where);
    auto expression = replicator::detail::record(formula_, DType::float64, std::make_index_sequence<1>{});
    return map_node(replica, std::move(expression), {&step, 1}, dtype, where);
  }

 private:
  double value_ = 0;
  std::function<Symbol(Symbol)> formula_;
};

namespace detail {
// The values of a formula are not known here, so they are not checked.
inline void require_rate(const char* optimizer, const Rate& rate) {
  if (rate.constant()) require_not_negative(optimizer, "learning_rate", rate.value());
}
inline void require_steps(const char* what, std::int64_t steps, std::int64_t least) {
  if (steps < least)
    throw BuildError{std::string{what} + ": asked for " + std::to_string(steps) + " steps, it takes at least " +
                     std::to_string(least)};
}
}  // namespace detail

// Rises linearly to `rate` over the first `steps` steps, beginning with 1/steps of it; then follows `rate`.
inline Rate linear_warmup(Rate rate, std::int64_t steps) {
  detail::require_steps("linear_warmup", steps, 1);
  return [rate, n = static_cast<double>(steps)](Symbol step) { return rate(step) * min((step + 1) / n, 1.0); };
}

// `rate`, multiplied by `factor` after every `every` steps.
inline Rate step_decay(double rate, double factor, std::int64_t every) {
  detail::require_not_negative("step_decay", "rate", rate);
  detail::require_not_negative("step_decay", "factor", factor);
  detail::require_steps("step_decay", every, 1);
  return [=](Symbol step) {
    const Symbol times = floor(step / static_cast<double>(every));
    return rate * pow(step.number(factor), times);
  };
}

// Rises linearly to `peak` over `warmup` steps, then falls along half a cosine to `final` at step `total`, and stays
// there.
// Source: Loshchilov and Hutter, "SGDR", 2017; Goyal et al., "Accurate, large minibatch SGD", 2017.
inline Rate warmup_cosine(double peak, std::int64_t warmup, std::int64_t total, double final = 0) {
  detail::require_not_negative("warmup_cosine", "peak", peak);
  detail::require_not_negative("warmup_cosine", "final", final);
  detail::require_steps("warmup_cosine (warmup)", warmup, 0);
  detail::require_steps("warmup_cosine (total)", total, warmup + 1);
  return [=](Symbol step) {
    const auto w = static_cast<double>(warmup);
    constexpr double pi = 3.14159265358979323846;
    const Symbol part = min(max((step - w) / (static_cast<double>(total) - w), 0.0), 1.0);
    const Symbol fall = final + (peak - final) * 0.5 * (1 + cos(pi * part));
    return warmup > 0 ? select(step < w, peak * (step + 1) / w, fall) : fall;
  };
}

}  // namespace replicator::nn
