// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum, Nesterov's momentum and weight decay, by PyTorch's formulas.
#pragma once

#include <limits>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <replicator/nn/optimizer.hpp>
#include <replicator/nn/rate.hpp>

namespace replicator::nn {

struct SgdOptions {
  Rate learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;  // needs momentum
  double weight_decay = 0;
  bool decay_vectors = true;  // false: leaves variables of rank 0 and 1 (biases, gains of batch norm) undecayed
};

// g = gradient + weight_decay p;  m = momentum m + g;  p -= learning_rate (nesterov ? g + momentum m : m)
// m is the variable "<name>/momentum" (mirrored, zero at first), absent without momentum.
class Sgd {
 public:
  // Throws BuildError for an option that is negative or no finite number, and for nesterov without momentum.
  explicit Sgd(SgdOptions options) : options_{std::move(options)} {
    if (options_.learning_rate.constant()) require_not_negative("learning_rate", options_.learning_rate.value());
    require_not_negative("momentum", options_.momentum);
    require_not_negative("weight_decay", options_.weight_decay);
    if (options_.nesterov && options_.momentum == 0)
      throw BuildError{"sgd: nesterov needs a momentum, 0.9 for instance"};
  }

  // Without communication: the gradients are taken as they are. Mirrored variables need gradients that are the same on
  // all replicas.
  template <FloatingElement T>
  void apply_gradients(ReplicaContext& replica, const std::vector<Variable<T>>& variables,
                       const std::vector<Tensor<T>>& gradients,
                       std::source_location where = std::source_location::current()) const {
    const AnyTensor rate = options_.learning_rate.template in<T>(replica, where);
    const Formula decayed = formula(dtype_of<T>, options_.weight_decay);
    const Formula plain = formula(dtype_of<T>, 0);
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const bool decay = options_.decay_vectors || variables[i].shape().rank() > 1;
      update(replica, variables[i], gradients[i], rate, decay ? decayed : plain, where);
    }
  }

  // The step that makes the mean of the replicas' losses smaller; see AveragingOptimizer::minimize.
  template <FloatingElement T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, std::source_location where = std::source_location::current()) const;
  template <FloatingElement T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, const std::vector<Variable<T>>& variables,
                std::source_location where = std::source_location::current()) const;

 private:
  static void require_not_negative(const char* option, double value) {
    if (!(value >= 0 && value <= std::numeric_limits<double>::max()))  // a NaN fails every comparison
      throw BuildError{std::string{"sgd: "} + option + " is " + std::to_string(value) + ": it must be a finite number and must not be negative"};
  }

  using Formula = ExpressionPtr;  // (p, gradient, rate[, m]) -> (p[, m]); one for all variables

  Formula formula(DType dtype, double decay) const {
    const double momentum = options_.momentum;
    auto e = std::make_shared<Expression>();
    e->compute = compute_type(dtype);
    e->inputs = momentum > 0 ? 4 : 3;
    const Symbol p{*e, e->input(0)};
    const Symbol gradient{*e, e->input(1)};
    const Symbol rate{*e, e->input(2)};
    const Symbol g = decay > 0 ? gradient + decay * p : gradient;
    if (momentum > 0) {
      const Symbol m = momentum * Symbol{*e, e->input(3)} + g;
      const Symbol direction = options_.nesterov ? g + momentum * m : m;
      e->outputs = {(p - rate * direction).index(), m.index()};
    } else {
      e->outputs = {(p - rate * g).index()};
    }
    return e;
  }

  template <FloatingElement T>
  void update(ReplicaContext& replica, const Variable<T>& variable, const Tensor<T>& gradient, AnyTensor rate,
              const Formula& formula, std::source_location where) const {
    Graph& graph = replica.graph();
    std::vector<AnyTensor> operands{variable.read(where), gradient, rate};
    if (options_.momentum == 0) {
      const auto node = add_compute(graph, Map{formula, variable.shape(), {dtype_of<T>}}, operands, where);
      return variable.assign(Tensor<T>{graph.tensor(node)}, where);
    }
    const Variable<T> slot{graph, graph.declare({variable.name() + "/momentum",
                                                 {dtype_of<T>, variable.shape()},
                                                 VariableKind::mirrored,
                                                 false,
                                                 Initializer::zeros(),
                                                 where,
                                                 variable.device()})};
    operands.push_back(slot.read(where));
    const auto node = add_compute(graph, Map{formula, variable.shape(), {dtype_of<T>, dtype_of<T>}}, operands, where);
    variable.assign(Tensor<T>{graph.tensor(node, 0)}, where);
    slot.assign(Tensor<T>{graph.tensor(node, 1)}, where);
  }

  SgdOptions options_;
};

// Not inline, so that replicator::compiled can hold them: in a file of the user's they cost a tenth of a second each.
template <FloatingElement T>
void Sgd::minimize(ReplicaContext& replica, Tensor<T> loss, std::source_location where) const {
  wrap_optimizer(*this).minimize(replica, loss, where);
}
template <FloatingElement T>
void Sgd::minimize(ReplicaContext& replica, Tensor<T> loss, const std::vector<Variable<T>>& variables, std::source_location where) const {
  wrap_optimizer(*this).minimize(replica, loss, variables, where);
}

// nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
inline Sgd sgd(SgdOptions options) { return Sgd{std::move(options)}; }

}  // namespace replicator::nn
