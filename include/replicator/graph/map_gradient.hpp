// SPDX-License-Identifier: Apache-2.0
// The gradients of Map and Reduce. Reverse accumulation over a scalar expression gives another scalar expression.
#pragma once

#include <bit>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <replicator/graph/factored_sum.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::detail {

using Adjoint = std::optional<std::uint16_t>;

// Walks an expression backwards and builds the gradient expression. Its inputs, for n inputs and k outputs of the forward
// expression, are:
// - [0, n): the forward inputs
// - [n, n + k): one upstream gradient for each forward output
// - [n + k, n + 2k): the forward outputs themselves
template <class = void>
class ExpressionGradient {
 public:
  // `outputs_known`: the forward outputs are read as inputs instead of being computed again.
  ExpressionGradient(const Expression& forward, std::span<const AnyTensor> upstream, bool outputs_known)
      : forward_{forward}, adjoints_(forward.code.size()) {
    const auto n = forward.inputs;
    const auto k = static_cast<std::uint16_t>(forward.outputs.size());
    result_.compute = forward.compute;
    result_.inputs = static_cast<std::uint16_t>(n + 2 * k);
    copy_forward(outputs_known);
    for (std::uint16_t o = 0; o < k; ++o)
      if (upstream[o]) accumulate(forward.outputs[o], result_.input(static_cast<std::uint16_t>(n + o)));
    for (auto i = static_cast<std::uint16_t>(forward.code.size()); i-- > 0;)
      if (adjoints_[i]) propagate(i, *adjoints_[i]);
  }

  const Expression& expression() const { return result_; }
  // The instruction that holds d(sum of outputs * upstream) / d(input); empty for zero.
  Adjoint of_input(std::uint16_t input) const {
    for (std::size_t i = 0; i < forward_.code.size(); ++i)
      if (forward_.code[i].op == ScalarOp::input && forward_.code[i].a == input) return adjoints_[i];
    return std::nullopt;
  }

 private:
  void copy_forward(bool outputs_known) {
    const auto n = forward_.inputs;
    const auto k = static_cast<std::uint16_t>(forward_.outputs.size());
    for (std::uint16_t i = 0; i < forward_.code.size(); ++i) {
      auto instruction = forward_.code[i];
      if (instruction.op != ScalarOp::input && instruction.op != ScalarOp::constant) {
        instruction.a = copied_[instruction.a];
        if (operands_of(instruction.op) > 1) instruction.b = copied_[instruction.b];
        if (operands_of(instruction.op) > 2) instruction.c = copied_[instruction.c];
      }
      std::uint16_t index = 0;
      const auto output = position(i);
      if (outputs_known && output < k && operands_of(instruction.op) > 0)
        index = result_.input(static_cast<std::uint16_t>(n + k + output));
      else
        index = result_.append(instruction);
      copied_.push_back(index);
    }
  }
  std::uint16_t position(std::uint16_t instruction) const {
    std::uint16_t o = 0;
    while (o < forward_.outputs.size() && forward_.outputs[o] != instruction) ++o;
    return o;
  }
  void accumulate(std::uint16_t forward_index, std::uint16_t value) {
    auto& adjoint = adjoints_[forward_index];
    adjoint = adjoint ? result_.apply(ScalarOp::add, *adjoint, value) : value;
  }
  std::uint16_t mul(std::uint16_t a, std::uint16_t b) { return result_.apply(ScalarOp::multiply, a, b); }
  std::uint16_t neg(std::uint16_t a) { return result_.apply(ScalarOp::negate, a); }
  std::uint16_t choose(std::uint16_t condition, std::uint16_t yes, std::uint16_t no) {
    return result_.apply(ScalarOp::select, condition, yes, no);
  }

  // Passes the adjoint `u` of instruction `i` to its operands.
  void propagate(std::uint16_t i, std::uint16_t u) {
    const auto& f = forward_.code[i];
    const auto a = operands_of(f.op) > 0 ? copied_[f.a] : std::uint16_t{0};
    const auto b = operands_of(f.op) > 1 ? copied_[f.b] : std::uint16_t{0};
    const auto out = copied_[i];
    const auto apply = [&](ScalarOp op, std::uint16_t x, std::uint16_t y = 0) { return result_.apply(op, x, y); };
    const auto zero = [&] { return result_.constant(0); };
    switch (f.op) {
      case ScalarOp::negate: accumulate(f.a, neg(u)); break;
      case ScalarOp::absolute: accumulate(f.a, mul(u, apply(ScalarOp::sign, a))); break;
      case ScalarOp::square_root: accumulate(f.a, apply(ScalarOp::divide, mul(u, result_.constant(0.5)), out)); break;
      case ScalarOp::exponential: accumulate(f.a, mul(u, out)); break;
      case ScalarOp::logarithm: accumulate(f.a, apply(ScalarOp::divide, u, a)); break;
      case ScalarOp::hyperbolic_tangent:
        accumulate(f.a, mul(u, apply(ScalarOp::subtract, result_.constant(1), mul(out, out))));
        break;
      case ScalarOp::error_function: {  // 2 / sqrt(pi) exp(-a^2)
        const auto bell = apply(ScalarOp::exponential, neg(mul(a, a)));
        accumulate(f.a, mul(u, mul(result_.constant(1.12837916709551257390), bell)));
        break;
      }
      case ScalarOp::sine: accumulate(f.a, mul(u, apply(ScalarOp::cosine, a))); break;
      case ScalarOp::cosine: accumulate(f.a, neg(mul(u, apply(ScalarOp::sine, a)))); break;
      case ScalarOp::rectify: accumulate(f.a, choose(apply(ScalarOp::less_equal, out, zero()), zero(), u)); break;
      case ScalarOp::add: accumulate(f.a, u), accumulate(f.b, u); break;
      case ScalarOp::subtract: accumulate(f.a, u), accumulate(f.b, neg(u)); break;
      case ScalarOp::multiply: accumulate(f.a, mul(u, b)), accumulate(f.b, mul(u, a)); break;
      case ScalarOp::divide: {
        const auto quotient = apply(ScalarOp::divide, u, b);
        accumulate(f.a, quotient), accumulate(f.b, neg(mul(quotient, out)));
        break;
      }
      case ScalarOp::minimum: {  // ties go to the left operand
        const auto right = apply(ScalarOp::less, b, a);
        accumulate(f.a, choose(right, zero(), u)), accumulate(f.b, choose(right, u, zero()));
        break;
      }
      case ScalarOp::maximum: {
        const auto right = apply(ScalarOp::less, a, b);
        accumulate(f.a, choose(right, zero(), u)), accumulate(f.b, choose(right, u, zero()));
        break;
      }
      case ScalarOp::power: propagate_power(f, a, b, out, u); break;
      case ScalarOp::select: accumulate(f.b, choose(a, u, zero())), accumulate(f.c, choose(a, zero(), u)); break;
      case ScalarOp::multiply_add: accumulate(f.a, mul(u, b)), accumulate(f.b, mul(u, a)), accumulate(f.c, u); break;
      default: break;  // steps, comparisons and leaves have no derivative
    }
  }
  // Where the formulas would give 0 times infinity, the derivatives are 0. That is the case for x^0, and in the exponent
  // for 0^y with y >= 0.
  void propagate_power(const ScalarInstruction& f, std::uint16_t a, std::uint16_t b, std::uint16_t out, std::uint16_t u) {
    const auto apply = [&](ScalarOp op, std::uint16_t x, std::uint16_t y) { return result_.apply(op, x, y); };
    const auto zero = result_.constant(0);
    if (const auto& exponent = forward_.code[f.b]; exponent.op == ScalarOp::constant && is_floating(forward_.compute)) {
      // A constant exponent stays constant, so that higher derivatives end where it reaches 0.
      const double value = std::bit_cast<double>(exponent.bits);
      if (value != 0) accumulate(f.a, mul(u, mul(b, apply(ScalarOp::power, a, result_.constant(value - 1)))));
      return;
    }
    const auto lowered = apply(ScalarOp::power, a, apply(ScalarOp::subtract, b, result_.constant(1)));
    accumulate(f.a, mul(u, choose(apply(ScalarOp::equal, b, zero), zero, mul(b, lowered))));
    const auto flat = apply(ScalarOp::logical_and, apply(ScalarOp::equal, a, zero), apply(ScalarOp::less_equal, zero, b));
    accumulate(f.b, mul(u, choose(flat, zero, mul(out, result_.apply(ScalarOp::logarithm, a)))));
  }

  const Expression& forward_;
  Expression result_;
  std::vector<Adjoint> adjoints_;      // by forward instruction: an instruction of result_
  std::vector<std::uint16_t> copied_;  // forward instruction -> instruction of result_
};

// Adds nodes for the gradients of all wanted inputs.
template <class = void>
std::vector<AnyTensor> expression_gradients(const GradientContext& at, const Expression& forward, const Shape& domain,
                                            std::span<const AnyTensor> upstream, std::span<const AnyTensor> outputs) {
  const auto backward = at_line("the gradient of an elementwise operation", at.where, [&] {
    return ExpressionGradient<>{forward, upstream, !outputs.empty()};
  });
  std::vector<AnyTensor> candidates{at.inputs.begin(), at.inputs.end()};
  candidates.insert(candidates.end(), upstream.begin(), upstream.end());
  candidates.insert(candidates.end(), outputs.begin(), outputs.end());
  std::vector<AnyTensor> result(at.inputs.size());
  for (std::uint16_t i = 0; i < at.inputs.size(); ++i) {
    const auto adjoint = backward.of_input(i);
    if (!at.wanted[i] || !adjoint || !is_floating(at.inputs[i].dtype())) continue;
    auto [part, used] = extract(backward.expression(), {*adjoint});
    std::vector<AnyTensor> operands;
    for (const auto input : used) operands.push_back(candidates[input]);
    const auto axes = repeated_axes(at.inputs[i].shape(), domain);
    const auto dtype = at.inputs[i].dtype();
    if (part.code.size() == 1 && used.size() == 1 && axes.empty() && operands[0].type() == at.inputs[i].type()) {
      result[i] = operands[0];  // passed on unchanged, by an addition for example
      continue;
    }
    const AnyTensor gradient = axes.empty() ? map_node(at.graph, std::move(part), operands, domain, dtype, at.where)
                                            : factored_sum(at.graph, part, operands, domain, axes, dtype, at.where);
    result[i] = reshape(gradient, at.inputs[i].shape(), at.where);
  }
  return result;
}

}  // namespace replicator::detail

// Outputs are read back where they are stored without rounding. A relu's output also where it was rounded: only its sign
// counts.
template <class>
std::vector<replicator::AnyTensor> replicator::Map::gradient(const GradientContext& at) const {
  bool readable = true;
  for (std::size_t o = 0; o < dtypes.size(); ++o) {
    const bool sign_alone = expression->code[expression->outputs[o]].op == detail::ScalarOp::rectify && is_floating(dtypes[o]);
    readable = readable && (dtypes[o] == expression->compute || sign_alone);
  }
  return detail::expression_gradients(at, *expression, domain, at.upstream, readable ? at.outputs : std::span<const AnyTensor>{});
}

// A sum passes its upstream to every element. A minimum (maximum) passes it to the elements that attain it, in equal parts.
template <class>
std::vector<replicator::AnyTensor> replicator::Reduce::gradient(const GradientContext& at) const {
  std::vector<AnyTensor> spread(at.upstream.size());
  for (std::size_t o = 0; o < spread.size(); ++o) {
    if (!at.upstream[o]) continue;
    spread[o] = reshape(at.upstream[o], detail::keep_axes(domain, axes), at.where);
    if (kind == ReduceKind::sum) continue;
    auto [value, used] = detail::extract(*expression, {expression->outputs[o]});
    std::vector<AnyTensor> operands;
    for (const auto input : used) operands.push_back(at.inputs[input]);
    operands.push_back(reshape(at.outputs[o], spread[o].shape(), at.where));
    const auto extremum = value.input(value.inputs++);
    value.outputs = {value.apply(detail::ScalarOp::equal, value.outputs[0], extremum)};
    const auto attained = map_node(at.graph, value, operands, domain, dtypes[o], at.where);
    const auto count = reduce_node(at.graph, ReduceKind::sum, std::move(value), operands, domain, axes, dtypes[o], at.where);
    const auto share = apply(detail::ScalarOp::divide, {spread[o], reshape(count, spread[o].shape(), at.where)}, at.where);
    spread[o] = apply(detail::ScalarOp::multiply, {attained, share}, at.where);
  }
  return detail::expression_gradients(at, *expression, domain, spread, {});
}
