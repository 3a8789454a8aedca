// SPDX-License-Identifier: Apache-2.0
// Graph: the nodes of one replica in program order, with its results and variables.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/printable.hpp>
#include <replicator/graph/node.hpp>
#include <replicator/graph/variable.hpp>

namespace replicator {

namespace detail {
class LogicalDeviceScope;
}

// Reads a value that the step has assigned to a variable. Gradients end here, as they do at a variable's first value. From
// here on the value belongs to the variable, not to the computation that it came from.
struct AssignedValue {
  static constexpr std::string_view name = "assigned value";
  std::uint32_t variable = 0;

  template <class V>
  void describe(V& v) const {
    v("variable", variable);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext&) const { return {AnyTensor{}}; }
  std::vector<AnyTensor> expand(const ExpansionContext& at) const;  // the value
};

// Built by one trace of a step function. Passes build further graphs from it.
class Graph : public detail::GraphAnchor {
 public:
  explicit Graph(int replica = 0, int replicas = 1, int logical_devices = 1)
      : replica_{replica}, replicas_{replicas}, logical_devices_{logical_devices} {}
  Graph(const Graph&) = default;
  Graph(Graph&&) = default;
  Graph& operator=(const Graph&) = default;
  Graph& operator=(Graph&&) = default;

  int replica() const { return replica_; }
  int replicas() const { return replicas_; }
  // Number of devices on which nodes may be placed: see LogicalDeviceScope.
  int logical_devices() const { return logical_devices_; }
  const std::vector<detail::Node>& nodes() const { return nodes_; }
  const detail::Node& node(std::uint32_t index) const { return nodes_[index]; }
  const detail::Node& node(Value value) const { return nodes_[value.node]; }
  const TensorType& type(Value value) const { return nodes_[value.node].outputs[value.output]; }

  // Appends a node and returns its index; every input must be an earlier node. A node without a device gets the scope's
  // device, else that of its first input that is no leaf, else 0. A node without marks gets the graph's. Throws BuildError
  // for a complete graph and for a shape that is too large. Never inlined: g++ 12 would warn wrongly about alternatives
  // that the node does not hold.
  template <class = void>
  [[gnu::noinline]] std::uint32_t add(detail::Node node);
  AnyTensor tensor(std::uint32_t node, std::uint32_t output = 0) { return {*this, Value{node, output}}; }

  // `what`: the operation that was given `tensor`, which belongs to another graph, with its source line. Empty: the tensor is not known.
  template <class = void>
  [[noreturn]] static void refuse_foreign(const std::string& what, const AnyTensor& tensor);

  // The values that the step returns, flattened.
  std::vector<Value>& results() { return results_; }
  const std::vector<Value>& results() const { return results_; }

  const std::vector<VariableDeclaration>& variables() const { return variables_; }
  // Declares a variable, or finds the one of that name. Throws BuildError where the two differ in type, kind or initialiser,
  // and for a name that is empty or not UTF-8, a shape that is too large, or an invalid initialiser.
  template <class = void>
  std::uint32_t declare(VariableDeclaration declaration);
  // Null where there is no variable of that name.
  template <class = void>
  const VariableDeclaration* find_variable(std::string_view name) const {
    const auto found = variable_index_.find(name);
    return found == variable_index_.end() ? nullptr : &variables_[found->second];
  }
  // The variable's value at this point of the program: this replica's last assignment, or the value at the step's start.
  // Gradients end there.
  AnyTensor read(std::uint32_t variable, Location where) {
    if (!states_[variable].current) read_first(variable, where);
    else if (states_[variable].assigned) read_again(variable, where);
    states_[variable].read = true;
    return {*this, *states_[variable].current};
  }
  // Whether the step has read the variable up to now.
  bool has_read(std::uint32_t variable) const { return states_[variable].read; }
  // The variable's value at the step's start; empty where the step has not read it.
  AnyTensor start_value(std::uint32_t variable) {
    const auto& start = states_[variable].start;
    return start ? AnyTensor{*this, *start} : AnyTensor{};
  }
  // The line of the minimize that has updated the variable; empty where none has.
  std::optional<Location>& minimised(std::uint32_t variable) { return states_[variable].minimised; }
  // Throws BuildError where the type differs from the declaration.
  template <class = void>
  void assign(std::uint32_t variable, Value value, Location where);

  // The name of a node: "replica2/all_reduce#17", or with a label "replica2/conv1.weight".
  template <class = void>
  std::string name(std::uint32_t index) const;

  // The number of a new collective in program order.
  std::uint32_t next_collective() { return collectives_++; }

  // The marks of nodes that are added from here on. Set them with a ScopedValue.
  detail::NodeMarks& marks() { return marks_; }
  // The source line of all nodes that are added from here on. Empty: each has its own. Set it with a ScopedValue.
  std::optional<Location>& line() { return line_; }
  // The type in which products of float32 tensors are computed from here on; see rp::mixed_precision.
  DType& products() { return products_; }
  // The number of a new rp::recompute region, from 1.
  std::uint32_t next_region() { return ++regions_; }

  // The prefix of variable names at this point of the program ("layer1.0."); see ReplicaContext::scope.
  std::string& scope() { return scope_; }

  // The kind of variables that are declared from here on; see ReplicaContext::local_variables.
  LocalVariables& local_variables() { return local_variables_; }

  // Replaces the result of the first read of a trainable variable; null: the value at the step's start is used.
  using Substitute = AnyTensor (*)(Graph&, std::uint32_t variable, AnyTensor value, Location where);
  Substitute& substitute() { return substitute_; }

  // The logical device of the innermost scope; -1 outside of all scopes.
  std::int32_t device() const { return device_; }
  // Maps logical device i to i * devices / logical_devices(), for a replica that has fewer devices.
  void share_devices(int devices) {
    for (auto& node : nodes_) node.device = node.device * devices / logical_devices_;
    for (auto& variable : variables_) variable.device = variable.device * devices / logical_devices_;
    logical_devices_ = devices;
  }

 private:
  friend class detail::LogicalDeviceScope;

  std::int32_t device_for(const detail::Node& node) const {
    if (device_ >= 0) return device_;
    for (const auto input : node.inputs)
      if (!nodes_[input.node].leaf()) return nodes_[input.node].device;
    return 0;
  }
  // The state of a variable at this point of the program.
  struct VariableState {
    std::optional<Value> current, start;
    bool assigned = false;  // and not read since: `current` is the assigned value
    bool read = false;
    std::optional<Location> minimised = {};
  };
  template <class = void>
  void read_first(std::uint32_t variable, Location where);
  template <class = void>
  void read_again(std::uint32_t variable, Location where);

  int replica_;
  int replicas_;
  int logical_devices_;
  std::int32_t device_ = -1;  // of the scope; -1: none
  std::vector<detail::Node> nodes_;
  std::vector<Value> results_;
  std::vector<VariableDeclaration> variables_;
  std::map<std::string, std::uint32_t, std::less<>> variable_index_;
  std::vector<VariableState> states_;  // by variable
  std::string scope_;
  std::uint32_t collectives_ = 0;
  std::uint32_t regions_ = 0;
  detail::NodeMarks marks_;
  std::optional<Location> line_;
  DType products_ = DType::float32;
  Substitute substitute_ = nullptr;
  LocalVariables local_variables_ = LocalVariables::no;
};

template <class>
std::uint32_t Graph::add(detail::Node node) {
  if (complete())
    refuse_foreign(node.title() + " at " + node.where.text(), node.inputs.empty() ? AnyTensor{} : AnyTensor{*this, node.inputs[0]});
  for (const auto& output : node.outputs)
    if (output.shape.too_large()) throw BuildError{node.title() + " at " + node.where.text() + ": " + output.shape.too_large_text()};
  if (node.device < 0) node.device = device_for(node);
  if (node.marks == detail::NodeMarks{}) node.marks = marks_;
  if (line_) node.where = *line_;
  nodes_.push_back(std::move(node));
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

template <class>
std::uint32_t Graph::declare(VariableDeclaration declaration) {
  const auto found = variable_index_.find(declaration.name);
  if (found == variable_index_.end()) {
    if (declaration.name.empty())
      throw BuildError{"the variable at " + declaration.where.text() + " was given \"\" as its name: checkpoints and messages need one"};
    if (!detail::is_utf8(declaration.name))
      throw BuildError{"the variable \"" + detail::printable(declaration.name) + "\" at " + declaration.where.text() + " has a name that is not UTF-8, so no file could keep it: write the name in UTF-8"};
    if (declaration.type.shape.too_large())
      throw BuildError{"the variable \"" + declaration.name + "\" at " + declaration.where.text() + ": " + declaration.type.shape.too_large_text()};
    if (declaration.apart && declaration.kind == VariableKind::mirrored)
      throw BuildError{"the variable \"" + declaration.name + "\" at " + declaration.where.text() + " is mirrored, so it cannot begin apart on each replica: declare it replica_local"};
    if (declaration.type.shape.elements() > 0)  // an empty variable may have zero fan; nothing is drawn for it
      declaration.initializer.require_valid("the variable \"" + declaration.name + "\" at " + declaration.where.text(), declaration.type);
    const auto index = static_cast<std::uint32_t>(variables_.size());
    if (declaration.device < 0) declaration.device = std::max(device_, 0);
    variable_index_.emplace(declaration.name, index);
    variables_.push_back(std::move(declaration));
    states_.emplace_back();
    return index;
  }
  detail::require_same(variables_[found->second], declaration);
  return found->second;
}

template <class>
void Graph::assign(std::uint32_t variable, Value value, Location where) {
  const auto& declaration = variables_[variable];
  if (type(value) != declaration.type)
    throw BuildError{"replica " + std::to_string(replica_) + ": \"" + declaration.name + "\" is " +
                     declaration.type.text() + " (declared at " + declaration.where.text() + "), but the value assigned at " +
                     where.text() + " is " + type(value).text() + ": assign a value of the variable's type"};
  add({detail::Assign{variable}, {value}, {}, where, declaration.name, declaration.device});
  states_[variable].current = value;
  states_[variable].assigned = true;
}

template <class>
std::string Graph::name(std::uint32_t index) const {
  const auto& n = nodes_[index];
  const std::string prefix = "replica" + std::to_string(replica_) + "/";
  if (!n.label.empty()) return prefix + n.label;
  return prefix + std::string{n.kind()} + "#" + std::to_string(index);
}

template <class>
void Graph::read_first(std::uint32_t variable, Location where) {
  const auto& declaration = variables_[variable];
  const Value start{add({detail::Read{variable}, {}, {declaration.type}, where, declaration.name, declaration.device}), 0};
  states_[variable].start = states_[variable].current = start;
  if (!substitute_ || !declaration.trainable) return;
  const Value other = substitute_(*this, variable, {*this, start}, where).value();  // may declare variables
  states_[variable].current = other;
}

template <class>
void Graph::read_again(std::uint32_t variable, Location where) {
  const Value value = *states_[variable].current;
  states_[variable].current = Value{add({detail::Compute{AssignedValue{variable}}, {value}, {type(value)}, where, {}, node(value).device}), 0};
  states_[variable].assigned = false;
}

namespace detail {
// A handle on a graph was used that no longer exists. So the message cannot say what it stood for.
class GraphIsGone : public BuildError {
 public:
  using BuildError::BuildError;
};

template <class = void>
[[noreturn]] void refuse_stale_handle() {
  throw GraphIsGone{
      "a tensor or a variable was used that was kept from an earlier trace of a step_fn, whose graph is gone: make tensors anew in every "
      "trace, and ask for variables by name"};
}
}  // namespace detail

inline detail::GraphHandle::GraphHandle(Graph& graph) : place_{graph.place()} {}
inline Graph& detail::GraphHandle::operator*() const {
  if (!place_->anchor) detail::refuse_stale_handle();
  return static_cast<Graph&>(*place_->anchor);
}
template <class>
void Graph::refuse_foreign(const std::string& what, const AnyTensor& tensor) {
  std::string origin;
  if (tensor) {
    try {
      const auto& line = tensor.graph().node(tensor.value()).where;
      origin = " (" + tensor.graph().name(tensor.value().node) + (*line.file ? " at " + line.text() : "") + ")";
    } catch (const detail::GraphIsGone& error) {
      throw detail::GraphIsGone{what + ": " + error.what()};
    }
  }
  throw BuildError{what + ": a tensor of another replica's graph was used, or of an earlier trace" + origin +
                   "; every step_fn must use only its own arguments, and ask for its variables by name"};
}
inline const TensorType& AnyTensor::type() const { return graph_->type(value_); }

// The arguments of a gradient rule. `upstream[o]` is empty where output o does not reach the differentiated value.
struct GradientContext {
  Graph& graph;
  const AnyOperation& operation;
  std::span<const AnyTensor> inputs;
  std::span<const AnyTensor> outputs;
  std::span<const AnyTensor> upstream;
  std::span<const bool> wanted;  // inputs that need a gradient; the others' may be left empty
  Location where;
};

// The arguments of an expansion.
struct ExpansionContext {
  Graph& graph;
  std::span<const AnyTensor> inputs;
  Location where;
};

inline std::vector<AnyTensor> AssignedValue::expand(const ExpansionContext& at) const { return {at.inputs[0]}; }

namespace detail {
template <class = void>
[[noreturn]] void throw_at_line(std::string_view name, Location where, const BuildError& error) {
  throw BuildError{std::string{name} + " at " + where.text() + ": " + error.what()};
}
// Runs `make` and puts the user's line before the text of a BuildError.
template <class F>
decltype(auto) at_line(std::string_view name, Location where, F&& make) {
  try {
    return make();
  } catch (const BuildError& error) {
    throw_at_line(name, where, error);
  }
}
}  // namespace detail

// Adds a node for an operation, after it has inferred and checked the shapes. Errors name the operation, the replica and
// the user's line.
template <class = void>
std::uint32_t add_compute(Graph& graph, AnyOperation operation, std::span<const AnyTensor> inputs, Location where) {
  std::vector<TensorType> types;
  std::vector<Value> values;
  types.reserve(inputs.size());
  values.reserve(inputs.size());
  for (const auto& input : inputs) {
    if (!input.in(graph)) Graph::refuse_foreign(operation.title() + " at " + where.text(), input);
    values.push_back(input.value());
    types.push_back(input.type());
  }
  std::vector<TensorType> outputs;
  try {
    outputs = operation.infer_shape(types);
  } catch (const BuildError& error) {
    throw BuildError{detail::call_text(graph.replica(), operation.title(), where) + ": " + error.what()};
  }
  return graph.add({detail::Compute{std::move(operation)}, std::move(values), std::move(outputs), where, {}});
}

// The same, for an operation with one output.
inline AnyTensor compute(Graph& graph, AnyOperation operation, std::initializer_list<AnyTensor> inputs, Location where) {
  return graph.tensor(add_compute(graph, std::move(operation), {inputs.begin(), inputs.size()}, where));
}

}  // namespace replicator
