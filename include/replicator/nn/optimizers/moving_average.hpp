// SPDX-License-Identifier: Apache-2.0
// Exponential moving averages of variables, which give a smoother model for evaluation.
// Source: Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992; Tarvainen and Valpola,
// "Mean teachers are better role models", 2017.
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/scoped_value.hpp>
#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/update.hpp>

namespace replicator::nn {

namespace detail {

using replicator::detail::not_averaged;

// "<variable>/average", at first `not_averaged`. So it needs neither a count nor the variable's initial value.
template <class = void>
std::uint32_t declare_average(Graph& graph, std::uint32_t variable, Location where) {
  const VariableDeclaration& owner = graph.variables()[variable];
  return graph.declare({owner.name + std::string{replicator::detail::average_suffix}, {replicator::detail::compute_type(owner.type.dtype), owner.type.shape}, owner.kind, false, Initializer::constant(not_averaged), where, owner.device});
}

// average -> average < infinity ? kept average + (1 - kept) p : p
template <class = void>
void update_average(Graph& graph, std::uint32_t variable, double kept, Location where) {
  const auto slot = declare_average(graph, variable, where);
  const TensorType type = graph.variables()[slot].type;
  const auto formula = record_update(type.dtype, 2, [&](const std::vector<Symbol>& x) -> std::vector<Symbol> {
    return {select(x[0] < not_averaged, kept * x[0] + (1 - kept) * x[1], x[1])};
  });
  const AnyTensor operands[] = {graph.read(slot, where), graph.read(variable, where)};
  const auto node = add_compute(graph, Map{formula, type.shape, {type.dtype}}, operands, where);
  graph.assign(slot, {node, 0}, where);
}

// The average if there is one, else the variable's own value.
template <class = void>
AnyTensor read_average(Graph& graph, std::uint32_t variable, AnyTensor own, Location where) {
  const auto slot = declare_average(graph, variable, where);
  const TensorType type = graph.variables()[variable].type;
  const auto formula = record_update(replicator::detail::compute_type(type.dtype), 2, [](const std::vector<Symbol>& x) -> std::vector<Symbol> {
    return {select(x[0] < not_averaged, x[0], x[1])};
  });
  const AnyTensor operands[] = {graph.read(slot, where), own};
  return graph.tensor(add_compute(graph, Map{formula, type.shape, {type.dtype}}, operands, where));
}

}  // namespace detail

// Wraps an optimizer, and averages the variables it updates: average = decay average + (1 - decay) p after each update.
// The first update sets average = p. PyTorch's AveragedModel with get_ema_multi_avg_fn does the same. The average is
// the variable "<name>/average": of the same kind, and float32 for bfloat16 variables.
template <class Optimizer>
class Averaged : public Minimizes<Averaged<Optimizer>> {
 public:
  // Throws BuildError unless decay is in [0, 1).
  Averaged(Optimizer inner, double decay) : inner_{std::move(inner)}, decay_{decay} { detail::require_fraction("averaged", "decay", decay); }

  template <FloatingElement T>
  requires AppliesGradients<Optimizer, T>
  void apply_gradients(ReplicaContext& replica, const std::vector<Variable<T>>& variables,
                       const std::vector<Tensor<T>>& gradients,
                       std::source_location where = std::source_location::current()) const {
    inner_.apply_gradients(replica, variables, gradients, where);
    for (const auto& variable : variables) detail::update_average(replica, variable.index(), decay_, where);
  }

 private:
  Optimizer inner_;
  double decay_;
};

// nn::averaged(nn::sgd({.learning_rate = 0.1}), 0.999).minimize(replica, loss);
template <class Optimizer>
Averaged<Optimizer> averaged(Optimizer optimizer, double decay, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return Averaged<Optimizer>{std::move(optimizer), decay}; });
}

// For a step function that evaluates. While the result lives, a trainable variable that the step has not read before is
// read as its average. A variable without an average is read as itself. If earlier steps train the variables and keep no
// average of any, replicate() throws BuildError.
//   const auto averages = nn::read_averages(replica);
//   return rp::accuracy(network(replica, images), labels);
inline replicator::detail::ScopedValue<Graph::Substitute> read_averages(ReplicaContext& replica) { return {replica.graph().substitute(), &detail::read_average}; }

}  // namespace replicator::nn
