// SPDX-License-Identifier: Apache-2.0
// Sums an expression over axes. Factors that are constant along the axes are moved out of the sum: the sum of -(u s)
// becomes -(sum of u) s.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>

namespace replicator::detail {

// The part of an expression that computes `outputs`, and the inputs that it still reads. Its inputs are renumbered in that
// order.
template <class = void>
std::pair<Expression, std::vector<std::uint16_t>> extract(const Expression& whole, const std::vector<std::uint16_t>& outputs) {
  std::vector<bool> needed(whole.code.size());
  for (const auto output : outputs) needed[output] = true;
  for (std::size_t i = whole.code.size(); i-- > 0;) {
    const auto& f = whole.code[i];
    if (!needed[i] || operands_of(f.op) == 0) continue;
    needed[f.a] = true;
    if (operands_of(f.op) > 1) needed[f.b] = true;
    if (operands_of(f.op) > 2) needed[f.c] = true;
  }
  Expression part;
  part.compute = whole.compute;
  std::vector<std::uint16_t> used, renamed(whole.code.size());
  for (std::size_t i = 0; i < whole.code.size(); ++i) {
    if (!needed[i]) continue;
    auto f = whole.code[i];
    if (f.op == ScalarOp::input) {
      used.push_back(f.a);
      f.a = static_cast<std::uint16_t>(used.size() - 1);
    } else if (f.op != ScalarOp::constant) {
      f.a = renamed[f.a];
      if (operands_of(f.op) > 1) f.b = renamed[f.b];
      if (operands_of(f.op) > 2) f.c = renamed[f.c];
    }
    renamed[i] = part.append(f);
  }
  part.inputs = static_cast<std::uint16_t>(used.size());
  for (const auto output : outputs) part.outputs.push_back(renamed[output]);
  return {std::move(part), std::move(used)};
}

// For each instruction, whether its value is constant along `axes` of the domain.
template <class = void>
std::vector<bool> fixed_along(const std::vector<std::int64_t>& axes, const Expression& e, std::span<const AnyTensor> operands, const Shape& domain) {
  std::vector<bool> fixed;
  for (const auto& f : e.code) {
    if (f.op == ScalarOp::input) {
      const auto repeated = repeated_axes(operands[f.a].shape(), domain);
      fixed.push_back(std::includes(repeated.begin(), repeated.end(), axes.begin(), axes.end()));
      continue;
    }
    const int n = operands_of(f.op);
    fixed.push_back((n < 1 || fixed[f.a]) && (n < 2 || fixed[f.b]) && (n < 3 || fixed[f.c]));
  }
  return fixed;
}

// An expression as a core instruction with operations applied to it.
struct Factors {
  std::uint16_t core;             // an instruction
  std::vector<ScalarOp> done;     // outermost first: negate, or multiply or divide by ...
  std::vector<std::uint16_t> by;  // ... these constant instructions (unused for negate)
};
// Splits the expression's only output into a core and its constant factors.
template <class = void>
Factors factors_of(const Expression& e, const std::vector<bool>& fixed) {
  Factors result{e.outputs[0], {}, {}};
  while (!fixed[result.core]) {
    const auto& f = e.code[result.core];
    const bool right = operands_of(f.op) == 2 && fixed[f.b], left = f.op == ScalarOp::multiply && fixed[f.a];
    if (f.op != ScalarOp::negate && !left && !(right && (f.op == ScalarOp::multiply || f.op == ScalarOp::divide))) break;
    result.done.push_back(f.op);
    result.by.push_back(left ? f.a : f.b);
    result.core = left ? f.b : f.a;
  }
  return result;
}

// Sums the expression's only output over `axes` (ascending) and returns `dtype`. The axes disappear. A sum of no elements
// is zero, whatever its factors are, so they stay inside.
template <class = void>
AnyTensor factored_sum(Graph& graph, const Expression& e, std::span<const AnyTensor> operands, const Shape& domain,
                       const std::vector<std::int64_t>& axes, DType dtype, Location where) {
  const auto tensors_of = [&](const std::vector<std::uint16_t>& used) {
    std::vector<AnyTensor> result;
    for (const auto input : used) result.push_back(operands[input]);
    return result;
  };
  const Factors factors = domain.elements() == 0 ? Factors{e.outputs[0], {}, {}} : factors_of(e, fixed_along(axes, e, operands, domain));
  auto [core, core_inputs] = extract(e, {factors.core});
  const bool whole = factors.done.empty();
  const AnyTensor sum = reduce_node(graph, ReduceKind::sum, std::move(core), tensors_of(core_inputs), domain, axes, whole ? dtype : e.compute, where);
  if (whole) return sum;

  std::vector<std::uint16_t> by;
  for (std::size_t i = 0; i < factors.by.size(); ++i)
    if (factors.done[i] != ScalarOp::negate) by.push_back(factors.by[i]);
  auto [outer, outer_inputs] = extract(e, by);
  auto inputs = tensors_of(outer_inputs);
  inputs.push_back(reshape(sum, keep_axes(domain, axes), where));
  auto value = outer.input(outer.inputs++);
  for (std::size_t i = factors.done.size(), factor = by.size(); i-- > 0;)
    value = factors.done[i] == ScalarOp::negate ? outer.apply(ScalarOp::negate, value) : outer.apply(factors.done[i], value, outer.outputs[--factor]);
  outer.outputs = {value};
  return map_node(graph, std::move(outer), inputs, dtype, where);
}

}  // namespace replicator::detail
