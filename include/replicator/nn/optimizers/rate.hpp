// SPDX-License-Identifier: Apache-2.0
// Learning rates that may change with the step, or be set by the program between steps. They are part of the graph, so
// nothing is traced again.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/update.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

// A number, or a formula of the number of steps done so far (0 in the first step). The formula is recorded as by
// rp::map:
//   nn::Rate rate = 0.1;
//   nn::Rate rate = [](rp::Symbol step) { return 0.1 / (1 + step); };
// Or a variable, which the program sets between steps:
//   nn::Rate rate = nn::Rate::variable("learning_rate", 0.1);
//   repl.set("learning_rate", 0.01);
class Rate {
 public:
  Rate(double value) : value_{value} {}  // NOLINT: implicit on purpose
  template <std::invocable<Symbol> F>
  requires std::same_as<std::invoke_result_t<F&, Symbol>, Symbol> Rate(F formula)
      : formula_{[formula = std::move(formula)](Symbol step, Symbol) mutable { return formula(step); }} {}  // NOLINT: implicit on purpose

  // The value of the variable `name`, which begins with `value`. It is a mirrored float64 without axes, and no optimizer
  // trains it. `name` is the whole name, without the replica's scope. Rates of one name are one variable.
  template <class = void>
  static Rate variable(std::string name, double value, std::source_location where = std::source_location::current()) {
    Rate rate = value;
    rate.variable_ = std::make_shared<const VariableDeclaration>(
        VariableDeclaration{std::move(name), {DType::float64, {}}, VariableKind::mirrored, false, Initializer::constant(value), where});
    rate.formula_ = [](Symbol, Symbol set) { return set; };
    return rate;
  }

  // This rate, changed by a formula: formula(rate, step).
  template <std::invocable<Symbol, Symbol> F>
  Rate then(F formula) const {
    Rate result = *this;
    result.formula_ = [rate = *this, formula = std::move(formula)](Symbol step, Symbol set) { return formula(rate(step, set), step); };
    return result;
  }

  bool constant() const { return !formula_; }
  // The constant; for a variable, its first value.
  double value() const { return value_; }
  // The rate as a part of an expression: of the number of steps done, as a floating number, and of the variable's value.
  // Without a variable, `set` is not used.
  Symbol operator()(Symbol step, Symbol set) const { return formula_ ? formula_(step, set) : step.number(value_); }
  // The first and the last of these scalars are the arguments of operator().
  template <class = void>
  std::vector<AnyTensor> operands(ReplicaContext& replica, std::source_location where) const {
    std::vector<AnyTensor> result{replica.step(where)};
    if (variable_) result.push_back(replica.graph().read(replica.graph().declare(*variable_), where));
    return result;
  }

  // The rate in this step, as a scalar of T. It is computed in double.
  template <FloatingElement T>
  Tensor<T> in(ReplicaContext& replica, std::source_location where = std::source_location::current()) const {
    return Tensor<T>{in(replica, dtype_of<T>, where)};
  }
  template <class = void>
  AnyTensor in(ReplicaContext& replica, DType dtype, std::source_location where) const {
    if (constant()) return fill(replica, {dtype, {}}, value_, where);
    return detail::scalars_of(replica, formula(), operands(replica, where), dtype, where)[0];
  }

 private:
  template <class = void>
  replicator::detail::ExpressionPtr formula() const {
    return detail::record_update(DType::float64, variable_ ? 2 : 1, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
      return {(*this)(x.front(), x.back())};
    });
  }

  double value_ = 0;
  std::function<Symbol(Symbol step, Symbol set)> formula_;
  std::shared_ptr<const VariableDeclaration> variable_;  // null: the rate depends on the step alone
};

namespace detail {
// The values of a formula are not known here, so they are not checked: value() is then 0, or a variable's first value.
inline void require_rate(const char* optimizer, const Rate& rate) { require_not_negative(optimizer, "learning_rate", rate.value()); }
inline void require_steps(const char* what, std::int64_t steps, std::int64_t least) {
  if (steps < least)
    throw BuildError{std::string{what} + ": asked for " + std::to_string(steps) + " steps, it takes at least " +
                     std::to_string(least)};
}
}  // namespace detail

// Rises linearly to `rate` over the first `steps` steps, beginning with 1/steps of it; then follows `rate`.
template <class = void>
Rate linear_warmup(const Rate& rate, std::int64_t steps, std::source_location where = std::source_location::current()) {
  replicator::detail::at_line("rate", where, [&] { detail::require_steps("linear_warmup", steps, 1); });
  return rate.then([n = static_cast<double>(steps)](Symbol later, Symbol step) { return later * min((step + 1) / n, 1.0); });
}

// `rate`, multiplied by `factor` after every `every` steps.
template <class = void>
Rate step_decay(double rate, double factor, std::int64_t every, std::source_location where = std::source_location::current()) {
  replicator::detail::at_line("rate", where, [&] {
    detail::require_not_negative("step_decay", "rate", rate);
    detail::require_not_negative("step_decay", "factor", factor);
    detail::require_steps("step_decay", every, 1);
  });
  return [=](Symbol step) {
    const Symbol times = floor(step / static_cast<double>(every));
    return rate * pow(step.number(factor), times);
  };
}

// Rises linearly to `peak` over `warmup` steps, then falls along half a cosine to `final` at step `total`, and stays
// there.
// Source: Loshchilov and Hutter, "SGDR", 2017; Goyal et al., "Accurate, large minibatch SGD", 2017.
template <class = void>
Rate warmup_cosine(double peak, std::int64_t warmup, std::int64_t total, double final = 0,
                   std::source_location where = std::source_location::current()) {
  replicator::detail::at_line("rate", where, [&] {
    detail::require_not_negative("warmup_cosine", "peak", peak);
    detail::require_not_negative("warmup_cosine", "final", final);
    detail::require_steps("warmup_cosine (warmup)", warmup, 0);
    if (total <= warmup)
      throw BuildError{"warmup_cosine: asked for " + std::to_string(total) + " steps in all, of which " + std::to_string(warmup) + " are the warm-up: give a larger total"};
  });
  return [=](Symbol step) {
    const auto w = static_cast<double>(warmup);
    constexpr double pi = 3.14159265358979323846;
    const Symbol part = min(max((step - w) / (static_cast<double>(total) - w), 0.0), 1.0);
    const Symbol fall = final + (peak - final) * 0.5 * (1 + cos(pi * part));
    return warmup > 0 ? select(step < w, peak * (step + 1) / w, fall) : fall;
  };
}

}  // namespace replicator::nn
