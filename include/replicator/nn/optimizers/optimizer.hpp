// SPDX-License-Identifier: Apache-2.0
// The path from a loss to new variables: gradients, their mean over the replicas, and an optimizer's update.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/graph/node_text.hpp>
#include <replicator/nn/optimizers/accidental_pairs.hpp>
#include <replicator/nn/optimizers/update.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

// An optimizer for a single replica. It assigns variables from their gradients and knows nothing of other replicas.
template <class Optimizer, class T>
concept AppliesGradients = requires(const Optimizer& o, ReplicaContext& replica,
                                    const std::vector<Variable<T>>& variables, const std::vector<Tensor<T>>& gradients,
                                    std::source_location where) {
  o.apply_gradients(replica, variables, gradients, where);
};

namespace detail {

// Finds the value of each variable that a loss was computed from. Assignments give a variable several values in a step.
class ValuesRead {
 public:
  explicit ValuesRead(AnyTensor loss)
      : graph_{loss.graph()}, needed_(loss.value().node + 1), last_(graph_.variables().size()), assigned_since_(graph_.variables().size()) {
    needed_[loss.value().node] = true;
    for (auto i = static_cast<std::uint32_t>(needed_.size()); i-- > 0;)
      if (needed_[i] && !replicator::detail::ends_gradients(graph_.node(i)))
        for (const auto input : graph_.node(i).inputs) needed_[input.node] = true;
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      const replicator::detail::Node& node = graph_.node(i);
      if (const auto* read = node.get<replicator::detail::Read>()) note(read->variable, i);
      const auto* compute = node.get<replicator::detail::Compute>();
      if (const auto* again = compute ? compute->operation.get<AssignedValue>() : nullptr) note(again->variable, i);
      const auto* assign = node.get<replicator::detail::Assign>();
      if (assign && i >= needed_.size()) assigned_since_[assign->variable] = true;
    }
  }

  // The last value of the variable that the loss was computed from. Without one, `now`: its value at this point of the
  // step.
  AnyTensor of(std::uint32_t variable, AnyTensor now) const {
    if (variable >= last_.size() || !last_[variable] || (!assigned_since_[variable] && needed(now.value()))) return now;
    return {graph_, *last_[variable]};
  }

 private:
  bool needed(Value value) const { return value.node < needed_.size() && needed_[value.node]; }
  void note(std::uint32_t variable, std::uint32_t node) {
    if (needed({node, 0})) last_[variable] = Value{node, 0};
  }

  Graph& graph_;
  std::vector<bool> needed_;                // nodes that the loss is computed from, back to the ends of gradients
  std::vector<std::optional<Value>> last_;  // by variable
  std::vector<bool> assigned_since_;        // by variable: assigned after the loss
};

// Explains why no variable has a gradient of the loss. `first`: the name of one of the variables. `nearest_end`: the
// node where the gradient ends, if known.
template <class = void>
std::string no_gradient_text(const Graph& graph, std::optional<std::uint32_t> nearest_end, std::size_t variables, const std::string& first) {
  const auto them = " any of the " + std::to_string(variables) + " variables that are to be trained (\"" + first + "\" is one)";
  if (nearest_end)
    return "has no gradient for" + them + ": it ends at " + replicator::detail::located_text(graph, *nearest_end) +
           ", where the derivative is 0 or does not exist, as for comparisons, argmax and casts to integers: minimise the input of that operation";
  return "does not depend on" + them +
         ": compute it from the outputs of the layers, without a rp::stop_gradient between; if a replica has nothing to add, use 0 times such a loss";
}

}  // namespace detail

// The gradients of this replica's loss, one for each variable. For a variable that the step has assigned, this is the
// gradient with respect to the last of its values that the loss has read.
// Throws BuildError unless the loss is one number and has a gradient for at least one of the variables. Warns on stderr where the
// loss subtracts shapes such as [n, 1] and [n].
template <FloatingElement T>
std::vector<Tensor<T>> variable_gradients(Tensor<T> loss, const std::vector<Variable<T>>& variables,
                                          std::source_location where = std::source_location::current()) {
  Graph& graph = loss.graph();
  const auto refuse = [&](const std::string& why) {
    throw BuildError{replicator::detail::call_text(graph.replica(), "the loss minimised", where) + " " + why};
  };
  if (loss.shape().elements() != 1) refuse("must be one number, found " + loss.any().type().text() + ": take its rp::mean");
  const detail::ValuesRead read{loss};
  std::vector<AnyTensor> values;
  for (const auto& variable : variables) values.push_back(read.of(variable.index(), variable.read(where)));
  replicator::detail::Differentiation<> differentiation{loss, values, where};
  bool any = values.empty();
  for (const auto& value : values) any = any || differentiation.arrived(value);
  detail::warn_of_accidental_pairs(loss, where);
  if (!any) refuse(detail::no_gradient_text(graph, differentiation.nearest_end(), variables.size(), variables[0].name()));
  std::vector<Tensor<T>> result;
  for (const auto& value : values) result.emplace_back(differentiation.of(value));
  return result;
}

// The format of gradients while they move between replicas.
enum class Wire : std::uint8_t {
  whole,     // unchanged
  bfloat16,  // half the bytes of float32. Each gradient is rounded before it moves, and so is the sum at every node of the tree over
             // the replicas. This is the same on every placement, so no placement changes a bit. The division by the number of
             // replicas is done in T again.
};

namespace detail {

// The indices of the gradients, in the order in which the step makes them.
template <class = void>
std::vector<std::size_t> order_of_making(const std::vector<Trained>& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return all[a].gradient.value() < all[b].gradient.value(); });
  return order;
}

// The mean over the replicas, by an all_reduce or a reduce_scatter.
template <class = void>
AnyTensor mean_by_wire(replicator::detail::CollectiveKind kind, AnyTensor gradient, Wire wire, const std::string& label, Location where) {
  const DType dtype = gradient.dtype();
  Graph& graph = gradient.graph();
  const auto ask = [&](AnyTensor value, Reduction reduction) {
    return replicator::detail::placeholder_node(value, {kind, reduction, 0, false, {}}, where, label);
  };
  if (wire == Wire::whole || dtype == DType::bfloat16) return ask(gradient, Reduction::mean);
  const auto same = [](Symbol x) { return x; };
  const AnyTensor narrow = replicator::detail::map_at(graph, DType::bfloat16, where, same, gradient);
  const AnyTensor sum = ask(narrow, Reduction::sum);
  return apply(replicator::detail::ScalarOp::divide, replicator::detail::map_at(graph, dtype, where, same, sum), graph.replicas(), where);
}

}  // namespace detail

// The mean over the replicas of each gradient, by all-reduces with the label "<variable>/gradient". They are asked for
// in the order in which the gradients become ready, the last layer's first, so that buckets fill early.
template <FloatingElement T>
std::vector<Tensor<T>> mean_over_replicas(const std::vector<Variable<T>>& variables,
                                          const std::vector<Tensor<T>>& gradients, Wire wire = Wire::whole,
                                          std::source_location where = std::source_location::current()) {
  std::vector<Tensor<T>> means = gradients;
  for (const auto i : detail::order_of_making(trained(variables, gradients, where)))
    means[i] = Tensor<T>{detail::mean_by_wire(replicator::detail::CollectiveKind::all_reduce, gradients[i], wire, variables[i].name() + "/gradient", where)};
  return means;
}

// Throws BuildError without variables. `asked`: the caller's name for errors.
template <FloatingElement T>
void require_variables(const ReplicaContext& replica, const std::vector<Variable<T>>& variables, const std::string& asked,
                       std::source_location where = std::source_location::current()) {
  if (!variables.empty()) return;
  const std::string who = replicator::detail::call_text(replica.id(), asked, where);
  const std::string type{name_of(dtype_of<T>)};
  const auto& graph = replica.graph();
  for (std::uint32_t i = 0; i < graph.variables().size(); ++i) {
    const auto& declared = graph.variables()[i];
    if (!declared.trainable || declared.type.dtype != dtype_of<T> || !graph.has_read(i)) continue;
    throw BuildError{who + " was given no variables, but this step has read trainable ones of " + type + ", \"" + declared.name +
                     "\" first: if they are those of a scope, check its name"};
  }
  throw BuildError{who + " found no trainable variable of " + type + ", the loss's type, that this step has read: make one with " +
                   "replica.variable<T>(...) or a layer of rp::nn, or cast the loss to the variables' type (float32 for layers of bfloat16)"};
}

// Throws BuildError without variables, or if one is not mirrored.
template <FloatingElement T>
void require_trainable(const ReplicaContext& replica, const std::vector<Variable<T>>& variables, const std::string& asked,
                       std::source_location where = std::source_location::current()) {
  require_variables(replica, variables, asked, where);
  for (const auto& variable : variables) {
    const auto& declared = replica.graph().variables()[variable.index()];
    if (declared.kind == VariableKind::mirrored) continue;
    // Only local_variables() makes a variable that is trainable and not mirrored.
    const auto [cause, cure] = declared.trainable
                                   ? std::pair{" because replica.local_variables() was alive there", "declare it outside that scope"}
                                   : std::pair{"", "declare it without VariableKind::replica_local"};
    throw BuildError{replicator::detail::call_text(replica.id(), asked, where) + " was given \"" + variable.name() +
                     "\", declared at " + declared.where.text() + ", which is " + std::string{name_of(declared.kind)} + cause +
                     ": only mirrored variables can be trained on all replicas; " + cure + ", or train it by nn::local(optimizer) on each replica alone, and " +
                     "give each minimize a list of its variables: replica.trainable_variables<float>(\"expert\"), for example"};
  }
}

namespace detail {

// A line on stderr, of replica 0 alone, if another minimize of this step has updated one of the variables.
template <FloatingElement T>
void note_minimised(ReplicaContext& replica, const std::vector<Variable<T>>& variables, Location where) {
  std::size_t again = 0;
  std::string first, before;
  for (const auto& variable : variables) {
    auto& line = replica.graph().minimised(variable.index());
    if (line && line->text() != where.text() && again++ == 0) first = variable.name(), before = line->text();
    line = where;
  }
  if (again == 0 || replica.id() != 0) return;
  const std::string others = again == 1 ? "" : " and " + std::to_string(again - 1) + " other variable(s)";
  std::fprintf(stderr,
               "replicator: minimize at %s updates \"%s\"%s, which minimize at %s has updated in the same step. Add the losses, or give each minimize "
               "the variables of its loss, for example replica.trainable_variables<float>(\"generator\")\n",
               where.text().c_str(), first.c_str(), others.c_str(), before.c_str());
}

// A line on stderr, of replica 0 alone, for each replica-local variable that the loss is computed from and minimize leaves out.
template <class = void>
void warn_of_left_out(Graph& graph, AnyTensor loss, Location where) {
  if (graph.replica() != 0) return;
  for (std::uint32_t i = 0; i < graph.variables().size(); ++i) {
    const VariableDeclaration& declared = graph.variables()[i];
    const AnyTensor start = declared.left_out ? graph.start_value(i) : AnyTensor{};
    if (!start || !replicator::detail::dependent_nodes(loss, {&start, 1}, where).back()) continue;
    std::fprintf(stderr,
                 "replicator: the loss minimised at %s is computed from \"%s\", which is replica-local (declared at %s), so minimize leaves it as it is. "
                 "Train it by nn::local(optimizer), declared while replica.local_variables() lives; or declare it with {.trainable = false} if this is meant\n",
                 where.text().c_str(), declared.name.c_str(), declared.where.text().c_str());
  }
}

// Whether an optimizer, or one that it wraps, averages gradients over the replicas.
template <class Optimizer>
inline constexpr bool averages = false;
template <template <class...> class Wrapper, class Inner, class... Others>
inline constexpr bool averages<Wrapper<Inner, Others...>> = averages<Inner>;

}  // namespace detail

// Averages the gradients over all replicas, and gives the mean to an optimizer that knows only one replica.
// `Moves` is a Wire or a LowRank (nn/optimizers/low_rank.hpp): the form in which gradients are sent.
// Source: Buchlovsky et al., "TF-Replicator", 2019, section 3.3.
template <class Optimizer, class Moves = Wire>
class AveragingOptimizer {
  static_assert(!detail::averages<Optimizer>,
                "replicator: wrap_optimizer is inside another optimizer, so gradients would be averaged over the replicas twice: "
                "put it outside, as in wrap_optimizer(clipped(adamw({...}), 1.0)).minimize(replica, loss)");

 public:
  explicit AveragingOptimizer(Optimizer inner, Moves wire = Moves{}) : inner_{std::move(inner)}, wire_{std::move(wire)} {}

  template <FloatingElement T>
  requires AppliesGradients<Optimizer, T>
  void apply_gradients(ReplicaContext& replica, const std::vector<Variable<T>>& variables,
                       const std::vector<Tensor<T>>& gradients,
                       std::source_location where = std::source_location::current()) const {
    inner_.apply_gradients(replica, variables, mean_over_replicas(variables, gradients, wire_, where), where);
  }

  // Takes one step towards a smaller mean of the losses. Updates the given variables; by default, every trainable
  // variable of the loss's element type that this step has read.
  // Throws BuildError without a variable, if one is not mirrored, or if the loss is not one number. Warns on stderr if another
  // minimize of this step has updated one of the variables. Without a list of variables, it also warns if the loss is computed from
  // replica-local variables: minimize does not update them.
  template <FloatingElement T>
  void minimize(ReplicaContext& replica, Tensor<T> loss,
                std::source_location where = std::source_location::current()) const {
    detail::warn_of_left_out(replica, loss, where);
    minimize(replica, loss, replica.trainable_variables<T>(), where);
  }
  template <FloatingElement T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, const std::vector<Variable<T>>& variables,
                std::source_location where = std::source_location::current()) const {
    constexpr bool applies = AppliesGradients<Optimizer, T>;
    static_assert(applies,
                  "replicator: an optimizer needs `void apply_gradients(rp::ReplicaContext&, const std::vector<rp::Variable<T>>& variables, "
                  "const std::vector<rp::Tensor<T>>& gradients, std::source_location where) const`");
    require_trainable(replica, variables, "minimize", where);
    detail::note_minimised(replica, variables, where);
    if constexpr (applies) apply_gradients(replica, variables, variable_gradients(loss, variables, where), where);
  }

 private:
  Optimizer inner_;
  Moves wire_;
};

template <class Optimizer, class Moves>
inline constexpr bool detail::averages<AveragingOptimizer<Optimizer, Moves>> = true;

// Returns an optimizer that averages the gradients over all replicas before `optimizer` applies them:
//   nn::wrap_optimizer(nn::adamw({.learning_rate = 3e-4}), nn::Wire::bfloat16).minimize(replica, loss);
template <class Optimizer, class Moves = Wire>
AveragingOptimizer<Optimizer, Moves> wrap_optimizer(Optimizer optimizer, Moves wire = Moves{}) {
  return AveragingOptimizer<Optimizer, Moves>{std::move(optimizer), std::move(wire)};
}

// Base class (CRTP) that gives an optimizer for a single replica `minimize` over all replicas: one step towards a
// smaller mean of the replicas' losses. See AveragingOptimizer::minimize.
template <class Optimizer>
class Minimizes {
 public:
  template <FloatingElement T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, std::source_location where = std::source_location::current()) const;
  template <FloatingElement T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, const std::vector<Variable<T>>& variables,
                std::source_location where = std::source_location::current()) const;
};

// Base class (CRTP) of the optimizers of this library. It passes on variables of any element type without that type: to
// update_elements, or to update_variables if the optimizer needs whole variables.
template <class Optimizer>
class UpdatesVariables : public Minimizes<Optimizer> {
 public:
  // Updates without communication: uses the gradients as they are. Mirrored variables need gradients that are the same
  // on all replicas.
  template <FloatingElement T>
  void apply_gradients(ReplicaContext& replica, const std::vector<Variable<T>>& variables,
                       const std::vector<Tensor<T>>& gradients,
                       std::source_location where = std::source_location::current()) const {
    const auto& optimizer = static_cast<const Optimizer&>(*this);
    const DType compute = replicator::detail::compute_type(dtype_of<T>);
    if constexpr (UpdatesElements<Optimizer>) optimizer.update_elements(replica, trained(variables, gradients, where), compute, where);
    else optimizer.update_variables(replica, trained(variables, gradients, where), compute, where);
  }
};

// Not inline, so that replicator::compiled can hold them. In a user's file each costs a tenth of a second of compile
// time.
template <class Optimizer>
template <FloatingElement T>
void Minimizes<Optimizer>::minimize(ReplicaContext& replica, Tensor<T> loss, std::source_location where) const {
  wrap_optimizer(static_cast<const Optimizer&>(*this)).minimize(replica, loss, where);
}
template <class Optimizer>
template <FloatingElement T>
void Minimizes<Optimizer>::minimize(ReplicaContext& replica, Tensor<T> loss, const std::vector<Variable<T>>& variables,
                                    std::source_location where) const {
  wrap_optimizer(static_cast<const Optimizer&>(*this)).minimize(replica, loss, variables, where);
}

}  // namespace replicator::nn
