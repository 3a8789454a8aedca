// SPDX-License-Identifier: Apache-2.0
// Shared parts of optimizers: checks of options, state variables ("slots"), and the single pass over memory that
// computes the new values of a variable and its slots. Almost nothing is a template, to keep compile times short.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/real.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/symbol.hpp>
#include <replicator/nn/optimizers/dealt_elements.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

// A variable and its gradient, of any element type. If it is in parts, the gradient is this replica's part of it
// (nn/optimizers/dealt_elements.hpp). Its slots then are parts too, and replica-local.
struct Trained {
  std::uint32_t variable;
  AnyTensor gradient;
  bool in_parts = false;
};

// An optimizer that updates element by element: a new value depends only on the same element of the variable, the
// gradient and the slots. Such an optimizer can be given parts of variables.
template <class Optimizer>
concept UpdatesElements = requires(const Optimizer& o, ReplicaContext& replica, const std::vector<Trained>& all, DType compute,
                                   std::source_location where) { o.update_elements(replica, all, compute, where); };

namespace detail {

// Throws BuildError if the shapes differ. Without this check such a gradient would be broadcast.
template <class = void>
void require_gradient(const Graph& graph, std::uint32_t variable, AnyTensor gradient, Location where) {
  const VariableDeclaration& declared = graph.variables()[variable];
  if (gradient.shape() == declared.type.shape) return;
  throw BuildError{replicator::detail::call_text(graph.replica(), "the gradient given", where) + " for \"" + declared.name + "\" is " +
                   gradient.type().text() + ", but the variable is " + declared.type.text() + " (declared at " + declared.where.text() +
                   "): give a gradient of its shape"};
}

}  // namespace detail

// Pairs each variable with its gradient. Throws BuildError unless there is one for each, of the variable's shape.
template <FloatingElement T>
std::vector<Trained> trained(const std::vector<Variable<T>>& variables, const std::vector<Tensor<T>>& gradients, Location where) {
  if (variables.size() != gradients.size())
    throw BuildError{"found " + std::to_string(gradients.size()) + " gradients for " + std::to_string(variables.size()) + " variables at " +
                     where.text() + ": give one for each, in the same order"};
  std::vector<Trained> result;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    detail::require_gradient(gradients[i].graph(), variables[i].index(), gradients[i], where);
    result.push_back({variables[i].index(), gradients[i]});
  }
  return result;
}

namespace detail {

template <class = void>
[[noreturn]] void refuse_option(const char* optimizer, const char* option, double value, const char* rule) {
  throw BuildError{std::string{optimizer} + ": " + option + " is " + replicator::detail::number_text(value) + ": it must " + rule};
}
// A NaN fails every comparison.
inline void require_not_negative(const char* optimizer, const char* option, double value) {
  if (!(value >= 0 && replicator::detail::is_finite(value))) refuse_option(optimizer, option, value, "be a finite number and must not be negative");
}
inline void require_positive(const char* optimizer, const char* option, double value) {
  if (!(value > 0 && replicator::detail::is_finite(value))) refuse_option(optimizer, option, value, "be a finite number above 0");
}
inline void require_fraction(const char* optimizer, const char* option, double value) {
  if (!(value >= 0 && value < 1)) refuse_option(optimizer, option, value, "lie in [0, 1)");
}

// Declares the slot "<variable>/<name>", initially 0, on the variable's logical device. It is replica-local if the variable
// is, or if `local`.
template <class = void>
std::uint32_t declare_slot(Graph& graph, std::uint32_t variable, std::string_view name, TensorType type, Location where, bool local = false) {
  const VariableDeclaration& owner = graph.variables()[variable];
  return graph.declare({owner.name + "/" + std::string{name}, type, local ? VariableKind::replica_local : owner.kind, false, Initializer::zeros(), where, owner.device});
}

// Whether weight decay applies. `vectors`: also to variables of rank 0 and 1.
inline bool decays(const Graph& graph, const Trained& one, bool vectors) {
  return vectors || graph.variables()[one.variable].type.shape.rank() > 1;
}

// The number of updates of the variable, this one included: an int64 scalar, counted in the slot of that name.
template <class = void>
AnyTensor count_update(Graph& graph, std::uint32_t variable, std::string_view name, Location where) {
  const auto slot = declare_slot(graph, variable, name, {DType::int64, {}}, where);
  const AnyTensor count = apply(replicator::detail::ScalarOp::add, graph.read(slot, where), 1, where);
  graph.assign(slot, count.value(), where);
  return count;
}

// Records f(inputs) -> outputs, elementwise, computed in `compute`. f takes and returns a std::vector<Symbol>.
template <class F>
replicator::detail::ExpressionPtr record_update(DType compute, std::size_t inputs, const F& f) {
  auto e = std::make_shared<replicator::detail::Expression>();
  e->compute = compute;
  e->inputs = static_cast<std::uint16_t>(inputs);
  std::vector<Symbol> symbols;
  for (std::uint16_t i = 0; i < e->inputs; ++i) symbols.emplace_back(*e, e->input(i));
  for (const Symbol& output : f(symbols)) e->outputs.push_back(output.index());
  return e;
}

// The update of each element of a variable in a step.
struct UpdateFormula {
  replicator::detail::ExpressionPtr expression;
  std::optional<AnyOperation> of_float32 = {};  // the same as one operation, for float32 tensors

  UpdateFormula(replicator::detail::ExpressionPtr recorded) : expression{std::move(recorded)} {}  // NOLINT: implicit on purpose
};

// Evaluates the formula on scalars, in double, and rounds the outputs once to `result`.
template <class = void>
std::vector<AnyTensor> scalars_of(Graph& graph, const replicator::detail::ExpressionPtr& formula, std::span<const AnyTensor> inputs, DType result,
                                  Location where) {
  const std::vector<DType> dtypes(formula->outputs.size(), result);
  const auto node = add_compute(graph, Map{formula, Shape{}, dtypes}, inputs, where);
  std::vector<AnyTensor> outputs;
  for (std::uint32_t o = 0; o < dtypes.size(); ++o) outputs.push_back(graph.tensor(node, o));
  return outputs;
}

// The sum of the squares of all elements: a scalar of the type in which they are computed.
template <class = void>
AnyTensor sum_of_squares(AnyTensor x, Location where) {
  replicator::detail::Expression e;
  e.compute = replicator::detail::compute_type(x.dtype());
  e.inputs = 1;
  e.outputs = {e.apply(replicator::detail::ScalarOp::multiply, e.input(0), e.input(0))};
  std::vector<std::int64_t> axes(x.shape().rank());
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  return reduce_node(x.graph(), ReduceKind::sum, std::move(e), {&x, 1}, x.shape(), std::move(axes), replicator::detail::compute_type(x.dtype()), where);
}

// Updates in one pass: formula is (variable, gradient, scalars..., slots...) -> (value, slots...). Assigns the slots
// and returns the value, of type `result`. Slots have the type in which the variable's elements are computed: float32
// for a bfloat16 variable, so that small changes are not lost.
template <class = void>
AnyTensor advance(Graph& graph, const Trained& one, std::span<const AnyTensor> scalars, const std::vector<std::string_view>& slots,
                  const UpdateFormula& formula, DType result, Location where) {
  const AnyTensor whole = graph.read(one.variable, where);
  std::vector<AnyTensor> operands{one.in_parts ? own_part(whole, where) : whole, one.gradient};
  const TensorType slot_type{replicator::detail::compute_type(whole.dtype()), operands[0].shape()};
  operands.insert(operands.end(), scalars.begin(), scalars.end());
  std::vector<std::uint32_t> targets;
  std::vector<DType> dtypes{result};
  for (const auto name : slots) {
    targets.push_back(declare_slot(graph, one.variable, name, slot_type, where, one.in_parts));
    dtypes.push_back(slot_type.dtype);
    operands.push_back(graph.read(targets.back(), where));
  }
  const bool float32 = result == DType::float32 && one.gradient.dtype() == DType::float32 && whole.dtype() == DType::float32;
  const AnyOperation operation = formula.of_float32 && float32 ? *formula.of_float32 : Map{formula.expression, slot_type.shape, dtypes};
  const auto node = add_compute(graph, operation, operands, where);
  for (std::uint32_t i = 0; i < targets.size(); ++i) graph.assign(targets[i], {node, i + 1}, where);
  return graph.tensor(node, 0);
}

// The same, and assigns the value to the variable.
template <class = void>
void update(Graph& graph, const Trained& one, std::span<const AnyTensor> scalars, const std::vector<std::string_view>& slots,
            const UpdateFormula& formula, Location where) {
  const TensorType type = graph.variables()[one.variable].type;
  const AnyTensor value = advance(graph, one, scalars, slots, formula, type.dtype, where);
  const AnyTensor whole = one.in_parts ? joined(value, type.shape, graph.variables()[one.variable].name + "/value", where) : value;
  graph.assign(one.variable, whole.value(), where);
}

}  // namespace detail
}  // namespace replicator::nn
