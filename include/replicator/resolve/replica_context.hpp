// SPDX-License-Identifier: Apache-2.0
// The replica that a step function is traced for: its id, its variables, its scope of names and its logical devices.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/logical_device.hpp>
#include <replicator/graph/placeholder.hpp>
#include <replicator/graph/tensor.hpp>
#include <replicator/resolve/variable.hpp>

namespace replicator {

struct VariableOptions {
  VariableKind kind = VariableKind::mirrored;
  bool trainable = true;  // minimize() updates it; of replica_local variables, only those under local_variables() can be trained
};

namespace detail {
// Returns the variable's number in the graph. Throws BuildError as ReplicaContext::variable does.
template <class = void>
std::uint32_t declare_variable(Graph& graph, std::string_view name, TensorType type, Initializer initializer, const VariableOptions& options, Location where) {
  const VariableKind kind = graph.local_variables() != LocalVariables::no ? VariableKind::replica_local : options.kind;
  const bool apart = graph.local_variables() == LocalVariables::begin_apart && initializer.draws();
  const bool wanted = options.trainable && is_floating(type.dtype), trainable = wanted && options.kind == VariableKind::mirrored;
  return graph.declare({graph.scope() + std::string{name}, type, kind, trainable, std::move(initializer), where, -1, wanted && !trainable, apart});
}
}  // namespace detail

class ReplicaContext {
 public:
  explicit ReplicaContext(Graph& graph) : graph_{&graph} {}

  int id() const { return graph_->replica(); }
  int count() const { return graph_->replicas(); }
  Graph& graph() const { return *graph_; }
  operator Graph&() const { return *graph_; }  // NOLINT: implicit on purpose

  // Declares the variable `scope + name`, or finds it. The same name gives the same variable in every step function of
  // the Replicator.
  // Throws BuildError if type, kind or initialiser differ from an earlier declaration.
  template <Element T>
  Variable<T> variable(std::string_view name, Shape shape, Initializer initializer, VariableOptions options = {},
                       std::source_location where = std::source_location::current()) {
    return {*graph_, detail::declare_variable(*graph_, name, {dtype_of<T>, shape}, std::move(initializer), options, where)};
  }
  // Refuses a declaration without an initialiser.
  template <Element T>
  Variable<T> variable(std::string_view name, Shape shape) {
    static_assert(!Element<T>, "replicator: a variable needs its first value: replica.variable<float>(name, shape, rp::Initializer::zeros()), or normal(mean, deviation)");
    return variable<T>(name, shape, Initializer::zeros());
  }

  // The trainable variables of element type T that this step has read so far, in the order of declaration. With a
  // scope, only those below it: "generator" gives generator.linear.weight, ... So a step with two networks can train
  // one of them.
  template <FloatingElement T>
  std::vector<Variable<T>> trainable_variables(std::string_view scope = {});

  // The number of steps done before this one: an int64 scalar, the same on every replica.
  Tensor<std::int64_t> step(std::source_location where = std::source_location::current()) {
    return Tensor<std::int64_t>{
        graph_->tensor(graph_->add({detail::Input{detail::Input::Source::step, 0}, {}, {TensorType{DType::int64, {}}}, where, {}}))};
  }

  // While the result lives, names of declared variables begin with `name` and a dot.
  detail::ScopedValue<std::string> scope(std::string_view name) { return {graph_->scope(), graph_->scope() + std::string{name} + "."}; }

  // While the result lives, all declared variables are replica-local, those of layers too. Each replica then has weights of
  // its own: nn::local(optimizer) trains them, and nn::average_over_replicas averages them.
  // - begin_equal: all replicas begin with the same weights.
  // - begin_apart: each replica draws its own, as the experts of a mixture must. Constants stay equal.
  // - no: inside such a scope, variables are again as they are declared.
  //   const auto own = replica.local_variables();
  //   const auto expert = replica.local_variables(rp::LocalVariables::begin_apart);
  detail::ScopedValue<LocalVariables> local_variables(LocalVariables begin = LocalVariables::begin_equal) { return {graph_->local_variables(), begin}; }

  // While the result lives, new nodes and the variables they declare are on logical device i of this replica:
  //   Tensor<float> h = [&] { const auto here = replica.logical_device(0); return first_half(replica, x); }();
  // Without it, a node is on the device of its first input. A gradient is on the device of the node it belongs to, and
  // a variable stays with what is assigned to it. The library inserts copies between devices. No placing changes a bit.
  // Throws BuildError with the caller's line if the deployment gives a replica fewer logical devices.
  [[nodiscard]] detail::LogicalDeviceScope logical_device(int i, std::source_location where = std::source_location::current()) const {
    return {*graph_, i, Location{where}};
  }
  int logical_devices() const { return graph_->logical_devices(); }

 private:
  Graph* graph_;
};

template <FloatingElement T>
std::vector<Variable<T>> ReplicaContext::trainable_variables(std::string_view scope) {
  const std::string start = scope.empty() ? std::string{} : std::string{scope} + ".";
  std::vector<Variable<T>> result;
  for (std::uint32_t i = 0; i < graph_->variables().size(); ++i) {
    const auto& declaration = graph_->variables()[i];
    const bool chosen = declaration.trainable && declaration.type.dtype == dtype_of<T> && declaration.name.starts_with(start);
    if (chosen && graph_->has_read(i)) result.emplace_back(*graph_, i);
  }
  return result;
}

}  // namespace replicator
