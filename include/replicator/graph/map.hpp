// SPDX-License-Identifier: Apache-2.0
// The operations with expressions: Map (elementwise) and Reduce (over axes of an elementwise result). Also Reshape,
// StopGradient and functions that add such nodes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/expression.hpp>
#include <replicator/graph/graph.hpp>

namespace replicator {

namespace detail {
// The shape over which an expression runs: the inputs broadcast together as in NumPy. Throws BuildError where they do not
// fit.
template <class = void>
Shape broadcast_all(std::span<const TensorType> inputs) {
  Shape shape;
  for (const auto& input : inputs) {
    const auto joined = broadcast(shape, input.shape);
    if (!joined) {
      std::string shapes;
      for (const auto& i : inputs) shapes += (shapes.empty() ? "" : " and ") + i.text();
      throw BuildError{"found " + shapes + ", whose shapes cannot be broadcast together: make the extents equal or 1"};
    }
    shape = *joined;
  }
  return shape;
}

// The shape with the reduced axes kept as 1.
inline Shape keep_axes(const Shape& domain, const std::vector<std::int64_t>& axes) {
  Shape shape = domain;
  for (const auto axis : axes) shape[static_cast<std::size_t>(axis)] = 1;
  return shape;
}

// The axes of `domain` along which a tensor of `shape` is repeated.
template <class = void>
std::vector<std::int64_t> repeated_axes(const Shape& shape, const Shape& domain) {
  std::vector<std::int64_t> axes;
  const auto missing = domain.rank() - shape.rank();
  for (std::size_t axis = 0; axis < domain.rank(); ++axis)
    if (domain[axis] != 1 && (axis < missing || shape[axis - missing] == 1)) axes.push_back(static_cast<std::int64_t>(axis));
  return axes;
}

// Throws BuildError where an input does not broadcast to `domain`.
inline void require_domain(std::span<const TensorType> inputs, const Shape& domain) {
  for (const auto& input : inputs)
    if (const auto joined = broadcast(input.shape, domain); !joined || !(*joined == domain))
      throw BuildError{"an input of shape " + input.shape.text() + " does not fit the domain " + domain.text()};
}
}  // namespace detail

// Elementwise: each output element is the expression of the corresponding input elements, with inputs broadcast to
// `domain`.
struct Map {
  static constexpr std::string_view name = "map";
  detail::ExpressionPtr expression;
  Shape domain;
  std::vector<DType> dtypes;  // of the outputs

  template <class V>
  void describe(V& v) const {
    v("expression", *expression);
    v("domain", domain);
    v("dtypes", dtypes);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    detail::require_domain(inputs, domain);
    std::vector<TensorType> result;
    for (const auto dtype : dtypes) result.push_back({dtype, domain});
    return result;
  }
  std::string formula(std::size_t length) const { return expression->text(length); }
  template <class = void>
  std::vector<AnyTensor> gradient(const GradientContext& at) const;  // gradients of expressions: graph/map_gradient.hpp
};

// The reduction of an expression's values along axes.
enum class ReduceKind : std::uint8_t {
  sum,
  min,
  max
};
// The name in messages.
constexpr std::string_view name_of(ReduceKind kind) {
  return kind == ReduceKind::sum   ? "sum"
         : kind == ReduceKind::min ? "min"
                                   : "max";
}

// Reduces each output of the expression over `axes` (ascending) of the broadcast shape. The axes disappear. A sum adds
// fixed blocks of 4,096 elements in stored order, then a tree over the blocks.
struct Reduce {
  static constexpr std::string_view name = "reduce";
  ReduceKind kind = ReduceKind::sum;
  detail::ExpressionPtr expression;
  std::vector<std::int64_t> axes;
  Shape domain;               // the shape that the inputs are broadcast to, over which the expression runs
  std::vector<DType> dtypes;  // of the outputs: the compute type, or a narrower one for a conversion at the end

  template <class V>
  void describe(V& v) const {
    v("kind", kind);
    v("expression", *expression);
    v("axes", axes);
    v("domain", domain);
    v("dtypes", dtypes);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    detail::require_domain(inputs, domain);
    Shape shape;
    std::size_t next = 0;
    for (std::size_t axis = 0; axis < domain.rank(); ++axis) {
      if (next < axes.size() && axes[next] == static_cast<std::int64_t>(axis)) ++next;
      else shape.push_back(domain[axis]);
    }
    if (next != axes.size()) throw BuildError{"the axes to reduce must be ascending, distinct and below the rank " + std::to_string(domain.rank())};
    if (kind != ReduceKind::sum && domain.elements() == 0 && shape.elements() > 0)
      throw BuildError{"asked for the " + std::string{name_of(kind)} + " over no elements, of the shape " + domain.text() +
                       ": give the reduced axes an extent of at least 1"};
    std::vector<TensorType> result;
    for (const auto dtype : dtypes) result.push_back({dtype, shape});
    return result;
  }
  std::string formula(std::size_t length) const {
    const std::string of = std::string{name_of(kind)} + " of ";
    return of + expression->text(length - of.size());
  }
  template <class = void>
  std::vector<AnyTensor> gradient(const GradientContext& at) const;  // graph/map_gradient.hpp
};

// The same memory with another shape of equally many elements.
struct Reshape {
  static constexpr std::string_view name = "reshape";
  static constexpr bool alias = true;
  Shape shape;

  template <class V>
  void describe(V& v) const { v("shape", shape); }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    if (inputs[0].shape.elements() != shape.elements())
      throw BuildError{"asked for the shape " + shape.text() + " of " + std::to_string(shape.elements()) + " elements, found " +
                       inputs[0].text() + " of " + std::to_string(inputs[0].shape.elements())};
    return {{inputs[0].dtype, shape}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    return {compute(at.graph, Reshape{at.inputs[0].shape()}, {at.upstream[0]}, at.where)};
  }
};

// The same value, but no gradient flows back.
struct StopGradient {
  static constexpr std::string_view name = "stop_gradient";
  static constexpr bool alias = true;

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext&) const { return {AnyTensor{}}; }
};

namespace detail {
// Adds an elementwise node over `domain`.
template <class = void>
AnyTensor map_node(Graph& graph, Expression expression, std::span<const AnyTensor> inputs, Shape domain, DType result, Location where) {
  return graph.tensor(add_compute(graph, Map{std::make_shared<const Expression>(std::move(expression)), domain, {result}}, inputs, where));
}

// What errors call an elementwise node that no named operation of the program has made.
inline constexpr std::string_view elementwise = "elementwise operation";

// The same over the inputs broadcast together. Throws BuildError where they do not fit, or belong to another graph. `title`: the
// call of the program, for errors.
template <class = void>
AnyTensor map_node(Graph& graph, Expression expression, std::span<const AnyTensor> inputs, DType result, Location where,
                   std::string_view title = elementwise) {
  std::vector<TensorType> types;
  for (const auto& input : inputs) {
    if (graph.complete() || !input.in(graph)) Graph::refuse_foreign(std::string{title} + " at " + where.text(), input);
    types.push_back(input.type());
  }
  Shape domain;
  try {
    domain = broadcast_all(types);
  } catch (const BuildError& error) {
    throw BuildError{call_text(graph.replica(), title, where) + ": " + error.what()};
  }
  return map_node(graph, std::move(expression), inputs, domain, result, where);
}

// Reduces an expression over axes of the domain: sum, min or max.
template <class = void>
AnyTensor reduce_node(Graph& graph, ReduceKind kind, Expression expression, std::span<const AnyTensor> inputs, Shape domain,
                      std::vector<std::int64_t> axes, DType result, Location where) {
  return graph.tensor(add_compute(
      graph, Reduce{kind, std::make_shared<const Expression>(std::move(expression)), std::move(axes), domain, {result}}, inputs, where));
}

// The graph of an operand. If it is gone, the error names the call and its line.
inline Graph& graph_of(const AnyTensor& x, std::string_view title, Location where) {
  try {
    return x.graph();
  } catch (const GraphIsGone& error) {
    throw GraphIsGone{std::string{title} + " at " + where.text() + ": " + error.what()};
  }
}

// An elementwise node in the graph of the first input, for the call `title` of the program.
inline AnyTensor map_node(std::string_view title, Expression expression, std::span<const AnyTensor> inputs, DType result, Location where) {
  return map_node(graph_of(inputs[0], title, where), std::move(expression), inputs, result, where, title);
}

// One scalar operation on tensors of one dtype.
template <class = void>
AnyTensor apply(ScalarOp op, std::initializer_list<AnyTensor> inputs, Location where, std::string_view title = elementwise) {
  Graph& graph = graph_of(*inputs.begin(), title, where);
  const DType dtype = inputs.begin()->dtype();
  Expression e;
  e.compute = compute_type(dtype);
  e.inputs = static_cast<std::uint16_t>(inputs.size());
  std::uint16_t x[3]{};
  for (std::uint16_t i = 0; i < e.inputs; ++i) x[i] = e.input(i);
  e.outputs = {e.apply(op, x[0], x[1], x[2])};
  return map_node(graph, std::move(e), {inputs.begin(), inputs.size()}, dtype, where, title);
}

// op(x, scalar)
template <class = void>
AnyTensor apply(ScalarOp op, AnyTensor x, Number scalar, Location where, std::string_view title = elementwise) {
  Graph& graph = graph_of(x, title, where);
  Expression e;
  e.compute = compute_type(x.dtype());
  e.inputs = 1;
  e.outputs = {e.apply(op, e.input(0), e.constant(scalar))};
  return map_node(graph, std::move(e), {&x, 1}, x.dtype(), where, title);
}
}  // namespace detail

// Converts the values to another type.
template <class = void>
AnyTensor converted(AnyTensor x, DType to, Location where) {
  if (x.dtype() == to) return x;
  detail::Expression e;
  e.compute = detail::compute_type(x.dtype());
  e.inputs = 1;
  e.outputs = {e.input(0)};
  return detail::map_node(x.graph(), std::move(e), {&x, 1}, to, where);
}

inline AnyTensor reshape(AnyTensor x, Shape shape, Location where) {  // throws BuildError for another number of elements
  if (x.shape() == shape) return x;
  return compute(x.graph(), Reshape{shape}, {x}, where);
}

// Adds a constant node. Throws BuildError for an array without memory.
template <class = void>
AnyTensor constant_node(Graph& graph, AnyArray array, Location where) {
  if (array.empty()) detail::refuse_without_memory("constant at " + where.text() + ", which every replica makes from a copy of its own");
  detail::Hasher hasher;
  hasher.word(static_cast<std::uint64_t>(array.dtype()));
  for (const auto extent : array.shape()) hasher.word(static_cast<std::uint64_t>(extent));
  hasher.bytes(array.bytes());
  const TensorType type = array.type();
  return graph.tensor(graph.add({detail::Constant{std::make_shared<const AnyArray>(std::move(array)), hasher.result()}, {}, {type}, where, {}}));
}

// A tensor of this type with `value` in every element.
template <class = void>
AnyTensor fill(Graph& graph, TensorType type, Number value, Location where) {
  detail::Expression e;
  e.compute = detail::compute_type(type.dtype);
  e.outputs = {e.constant(value)};
  return detail::map_node(graph, std::move(e), {}, type.shape, type.dtype, where);
}

}  // namespace replicator
