// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation. Gradient rules build ordinary nodes, so gradients of gradients work. A gradient node is on
// the same logical device as its forward node.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/logical_device.hpp>
#include <replicator/graph/placeholder.hpp>
#include <replicator/graph/tensor.hpp>

namespace replicator {

namespace detail {

// Whether no gradient flows through the node.
inline bool ends_gradients(const detail::Node& node) {
  const auto* compute = node.get<detail::Compute>();
  return compute && (compute->operation.get<StopGradient>() || compute->operation.get<AssignedValue>());
}

// For each node up to y's, whether it depends on an x. A dependence through a node that ends gradients (stop_gradient)
// does not count, so no gradient rule is needed along it.
template <class = void>
std::vector<bool> dependent_nodes(AnyTensor y, std::span<const AnyTensor> xs, Location where) {
  Graph& graph = y.graph();
  for (const auto& x : xs)
    if (!x.in(graph)) Graph::refuse_foreign("the gradient at " + where.text(), x);
  const std::uint32_t end = y.value().node + 1;
  std::vector<bool> depends(end);
  for (const auto& x : xs)
    if (x.value().node < end) depends[x.value().node] = true;
  for (std::uint32_t i = 0; i < end; ++i) {
    if (ends_gradients(graph.node(i))) continue;
    for (const auto& input : graph.node(i).inputs) depends[i] = depends[i] || depends[input.node];
  }
  return depends;
}

// Computes the gradients of y by walking its graph backwards. `upstream` is the gradient of y itself: 1 unless given.
template <class = void>
class Differentiation {
 public:
  Differentiation(AnyTensor y, std::span<const AnyTensor> xs, Location where, AnyTensor upstream = {})
      : graph_{y.graph()}, end_{y.value().node + 1}, where_{where}, reaches_{dependent_nodes(y, xs, where)}, adjoints_(end_) {
    const detail::LogicalDeviceScope there{graph_, graph_.node(y.value()).device};
    detail::NodeMarks marks = graph_.marks();
    for (std::uint32_t i = 0; i < end_; ++i)
      if (reaches_[i]) marks.order = std::max(marks.order, graph_.node(i).marks.order);
    ++marks.order;
    const detail::ScopedValue scope{graph_.marks(), marks};
    accumulate(y.value(), upstream ? upstream : fill(graph_, y.type(), 1, where));
    for (std::uint32_t i = end_; i-- > 0;) {
      if (!reaches_[i] || adjoints_[i].empty()) continue;
      add_up_parts(i);
      if (inputs_reach(i)) visit(i);
    }
  }

  // The gradient for x, of x's type; zeros where none arrived.
  AnyTensor of(AnyTensor x) {
    if (const auto* found = arrived(x)) return *found;
    const detail::LogicalDeviceScope there{graph_, graph_.node(x.value()).device};
    return fill(graph_, x.type(), 0, where_);
  }

  // Null where y does not depend on x, or only through operations without a gradient: comparisons, argmax, casts to
  // integers.
  const AnyTensor* arrived(AnyTensor x) const {
    if (x.value().node >= end_) return nullptr;
    const auto& outputs = adjoints_[x.value().node];
    return !outputs.empty() && outputs[x.value().output] ? &outputs[x.value().output] : nullptr;
  }
  // The node nearest to the xs that passed no gradient on, if any.
  std::optional<std::uint32_t> nearest_end() const { return nearest_end_; }

 private:
  // The value whose gradients are added up, and the operation that made them.
  struct PartsOf {
    std::uint32_t node, output;
    std::string_view operation;

    friend auto operator<=>(const PartsOf&, const PartsOf&) = default;
  };

  // Whether gradients go on from the node. They end at an x that depends on no x.
  bool inputs_reach(std::uint32_t node) const {
    const auto& inputs = graph_.node(node).inputs;
    return std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return reaches_[input.node]; });
  }
  void accumulate(Value value, AnyTensor gradient) {
    auto& outputs = adjoints_[value.node];
    if (outputs.empty()) outputs.resize(graph_.node(value.node).outputs.size());
    if (const auto* operation = operation_with_sum(gradient)) return parts_[PartsOf{value.node, value.output, operation->name()}].push_back(gradient);
    add(value, gradient);
  }
  void add(Value value, AnyTensor gradient) {
    auto& adjoint = adjoints_[value.node][value.output];
    const detail::LogicalDeviceScope there{graph_, graph_.node(value.node).device};
    adjoint = adjoint ? apply(detail::ScalarOp::add, {adjoint, gradient}, graph_.node(value.node).where) : gradient;
  }

  // The operation that made a gradient, if it has a rule to add up its results.
  const AnyOperation* operation_with_sum(AnyTensor gradient) const {
    const auto* compute = graph_.node(gradient.value()).get<detail::Compute>();
    return compute && compute->operation.has_sum() ? &compute->operation : nullptr;
  }
  // Completes the gradients of a node: adds those that have a rule of their own to do so.
  void add_up_parts(std::uint32_t node) {
    const auto first = parts_.lower_bound(PartsOf{node, 0, {}});
    auto last = first;
    for (; last != parts_.end() && last->first.node == node; ++last) {
      const Value value{node, last->first.output};
      const auto& parts = last->second;
      const detail::LogicalDeviceScope there{graph_, graph_.node(node).device};
      add(value, parts.size() == 1 ? parts[0] : AnyOperation{*operation_with_sum(parts[0])}.sum(graph_, parts, graph_.node(node).where));
    }
    parts_.erase(first, last);
  }

  // Copies what it needs of the node first, because adding nodes moves the existing ones.
  void visit(std::uint32_t index) {
    const std::vector<Value> values = graph_.node(index).inputs;
    const Location where = graph_.node(index).where;
    const detail::LogicalDeviceScope there{graph_, graph_.node(index).device};
    std::vector<AnyTensor> inputs, outputs;
    for (const auto value : values) inputs.emplace_back(graph_, value);
    for (std::uint32_t o = 0; o < graph_.node(index).outputs.size(); ++o) outputs.push_back(graph_.tensor(index, o));
    std::vector<AnyTensor> gradients;
    if (const auto* placeholder = graph_.node(index).get<detail::Placeholder>())
      gradients = {placeholder_gradient(detail::Placeholder{*placeholder}, inputs[0], outputs[0], adjoints_[index][0], where, std::string{graph_.node(index).label})};
    else if (const auto* compute = graph_.node(index).get<detail::Compute>())
      gradients = of_compute(AnyOperation{compute->operation}, inputs, outputs, adjoints_[index], where);
    bool handed_on = false;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i] && reaches_[values[i].node]) accumulate(values[i], gradients[i]), handed_on = true;
    if (!handed_on) nearest_end_ = index;
  }

  std::vector<AnyTensor> of_compute(const AnyOperation& operation, std::span<const AnyTensor> inputs, std::span<const AnyTensor> outputs,
                                    std::span<const AnyTensor> upstream, Location where) {
    if (!operation.has_gradient())
      throw BuildError{call_text(graph_.replica(), "the gradient asked for", where_) + " passes through " +
                       std::string{operation.name()} + " at " + where.text() +
                       ", which has no gradient rule: give the operation one, or wrap its input in rp::stop_gradient"};
    const auto wanted = std::make_unique<bool[]>(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) wanted[i] = reaches_[inputs[i].value().node];
    const GradientContext at{graph_, operation, inputs, outputs, upstream, {wanted.get(), inputs.size()}, where};
    auto gradients = operation.gradient(at);
    bool fits = gradients.size() <= inputs.size();
    for (std::size_t i = gradients.size(); i < inputs.size(); ++i) fits = fits && !(wanted[i] && is_floating(inputs[i].dtype()));
    if (!fits)
      throw BuildError{call_text(graph_.replica(), "the gradient rule of " + std::string{operation.name()}, where) +
                       " gives " + std::to_string(gradients.size()) + " gradients for " + std::to_string(inputs.size()) +
                       " inputs: it must return one tensor for each input, in order, and an empty rp::AnyTensor{} where the gradient is zero"};
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i] && gradients[i].type() != inputs[i].type())
        throw BuildError{call_text(graph_.replica(), "the gradient rule of " + std::string{operation.name()}, where) +
                         " gives " + gradients[i].type().text() + " for input " + std::to_string(i) + ", which is " + inputs[i].type().text() +
                         ": a gradient has the type and shape of its input"};
    return gradients;
  }

  Graph& graph_;
  std::uint32_t end_;
  Location where_;
  std::vector<bool> reaches_;                        // whether the node depends on an x
  std::vector<std::vector<AnyTensor>> adjoints_;     // by node and output; empty where nothing arrived
  std::map<PartsOf, std::vector<AnyTensor>> parts_;  // gradients that are not yet in adjoints_
  std::optional<std::uint32_t> nearest_end_;
};

// A line on stderr, of replica 0 alone, for an x that y does not depend on, though both are computed from one component of the
// input. A gradient of 0 is then seldom meant, unless y is a derivative itself: those of f(a) + g(b) do not depend on both a and b.
template <class = void>
void warn_of_unused(AnyTensor y, AnyTensor x, Location where) {
  Graph& graph = y.graph();
  if (graph.replica() != 0 || graph.node(x.value().node).inputs.empty()) return;
  const auto& own = graph.node(x.value().node);
  const auto sources = [&](AnyTensor of) {
    std::vector<bool> reached(std::max(x.value().node, y.value().node) + 1);
    reached[of.value().node] = true;
    for (std::uint32_t i = of.value().node + 1; i-- > 0;)
      for (const auto& input : graph.node(i).inputs) reached[input.node] = reached[input.node] || reached[i];
    return reached;
  };
  const auto of_y = sources(y);
  if (of_y[x.value().node]) return;
  for (std::uint32_t i = 0; i < of_y.size(); ++i)
    if (of_y[i] && graph.node(i).marks.order > 0) return;
  const auto of_x = sources(x);
  for (std::uint32_t i = 0; i < of_x.size(); ++i)
    if (const auto* input = graph.node(i).get<Input>(); of_x[i] && of_y[i] && input && input->source == Input::Source::element) {
      std::fprintf(stderr,
                   "replicator: the gradient at %s is 0: what is differentiated does not depend on the tensor made at %s, though both are computed from the same "
                   "input. Compute the one from the other, unless 0 is what you mean\n",
                   where.text().c_str(), own.where.text().c_str());
      return;
    }
}

}  // namespace detail

// The gradients of y with respect to each x, in x's type. At replica i this is the derivative of a sum with respect to
// replica i's own x. The sum is over all elements of y and all replicas. The gradient is zero where y does not depend on x.
// Throws BuildError where an operation on the way has no gradient rule.
template <class = void>
std::vector<AnyTensor> gradients(AnyTensor y, std::span<const AnyTensor> xs, Location where = Location{std::source_location::current()}) {
  detail::Differentiation<> differentiation{y, xs, where};
  std::vector<AnyTensor> result;
  for (const auto& x : xs) result.push_back(differentiation.of(x));
  return result;
}

// The same for typed tensors. Prints a line on stderr for an x that y was not computed from, where both come from one input.
template <FloatingElement T>
std::vector<Tensor<T>> gradients(Tensor<T> y, const std::vector<Tensor<T>>& xs,
                                 std::source_location where = std::source_location::current()) {
  const std::vector<AnyTensor> any{xs.begin(), xs.end()};
  std::vector<Tensor<T>> result;
  for (const auto& gradient : gradients(y.any(), any, where)) result.push_back(Tensor<T>{gradient});
  for (const auto& x : any) detail::warn_of_unused(y, x, where);
  return result;
}

// The same for tensors in braces:
//   const auto [u_x, u_t] = rp::gradients(u, {x, t});
template <FloatingElement T, std::size_t n>
std::array<Tensor<T>, n> gradients(Tensor<T> y, const Tensor<T> (&xs)[n], std::source_location where = std::source_location::current()) {
  const auto found = gradients(y, std::vector<Tensor<T>>(xs, xs + n), where);
  return [&]<std::size_t... i>(std::index_sequence<i...>) { return std::array<Tensor<T>, n>{found[i]...}; }
  (std::make_index_sequence<n>{});
}

// The same for one x.
template <FloatingElement T>
Tensor<T> gradient(Tensor<T> y, Tensor<T> x, std::source_location where = std::source_location::current()) {
  return gradients(y, std::vector<Tensor<T>>{x}, where)[0];
}

}  // namespace replicator
