// SPDX-License-Identifier: Apache-2.0
// Runs a graph node by node through the registered CPU kernels, without planner or runtime. Map and Reduce are
// interpreted here, element by element in double, so tests of other operations need no kernels for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/graph/passes/dead_code.hpp>
#include <replicator/graph/passes/expand.hpp>
#include <replicator/graph/tensor.hpp>

namespace replicator::test {

using namespace replicator::detail;

// --- layouts, element by element ---

// Calls f(index) for every index of the shape in row-major order.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  std::vector<std::int64_t> index(shape.rank(), 0);
  for (std::int64_t n = shape.elements(); n > 0; --n) {
    f(index);
    for (std::size_t axis = shape.rank(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

inline std::int64_t offset_of(const Layout& layout, const Shape& shape, const std::vector<std::int64_t>& of) {
  std::int64_t offset = 0;
  if (layout.plain) {
    for (std::size_t axis = 0; axis < shape.rank(); ++axis) offset = offset * shape[axis] + of[axis];
    return offset;
  }
  auto index = of;
  std::int64_t inner = 1;
  for (std::size_t i = layout.blocks; i-- > 0;) {
    auto& at = index[layout.axis[i]];
    offset += at % layout.size[i] * inner;
    inner *= layout.size[i];
    at /= layout.size[i];
  }
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) offset += index[axis] * layout.strides[axis];
  return offset;
}

// A tensor in some layout.
struct Held {
  TensorType type;
  Layout layout;
  AnyArray memory;  // of uint8: storage bytes

  std::byte* data() { return memory.data(); }
};

inline Held held(const TensorType& type, const Layout& layout) {
  const auto bytes = storage_elements(layout, type.shape) * static_cast<std::int64_t>(size_of(type.dtype));
  return {type, layout, AnyArray{{DType::uint8, Shape{bytes}}}};
}

inline Held relaid(const Held& from, const Layout& layout) {
  if (from.layout == layout) return from;
  Held to = held(from.type, layout);
  const std::size_t size = size_of(from.type.dtype);
  for_each_index(from.type.shape, [&](const std::vector<std::int64_t>& index) {
    std::memcpy(to.memory.data() + static_cast<std::size_t>(offset_of(layout, from.type.shape, index)) * size,
                from.memory.data() + static_cast<std::size_t>(offset_of(from.layout, from.type.shape, index)) * size, size);
  });
  return to;
}

inline Held held(const AnyArray& array) {
  Held result = held(array.type(), Layout{});
  if (array.size_bytes() > 0) std::memcpy(result.data(), array.data(), array.size_bytes());
  return result;
}

inline AnyArray array_of(const Held& value) {
  AnyArray result{value.type};
  const Held plain = relaid(value, Layout{});
  if (result.size_bytes() > 0) std::memcpy(result.data(), plain.memory.data(), result.size_bytes());
  return result;
}

// True if every storage element outside of the tensor has only zero bytes.
inline bool padding_is_zero(const Held& value) {
  if (value.layout.plain) return true;  // it has none
  const std::size_t size = size_of(value.type.dtype);
  std::vector<bool> used(value.memory.size_bytes() / size);
  for_each_index(value.type.shape, [&](const std::vector<std::int64_t>& index) {
    used[static_cast<std::size_t>(offset_of(value.layout, value.type.shape, index))] = true;
  });
  for (std::size_t i = 0; i < used.size() * size; ++i)
    if (!used[i / size] && value.memory.data()[i] != std::byte{}) return false;
  return true;
}

// --- Map and Reduce in double ---

inline std::vector<double> doubles(const AnyArray& array) {
  return visit_dtype(array.dtype(), [&]<class T>() {
    const auto values = array.as<T>();
    return std::vector<double>(values.begin(), values.end());
  });
}

inline AnyArray array_of(const TensorType& type, const std::vector<double>& values) {
  AnyArray result{type};
  visit_dtype(type.dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) result.as<T>()[i] = static_cast<T>(values[i]);
  });
  return result;
}

inline double scalar(const Expression& e, const ScalarInstruction& i, const std::vector<double>& r, const std::vector<double>& in) {
  const double a = operands_of(i.op) > 0 ? r[i.a] : 0, b = operands_of(i.op) > 1 ? r[i.b] : 0, c = operands_of(i.op) > 2 ? r[i.c] : 0;
  switch (i.op) {
    case ScalarOp::input: return in[i.a];
    case ScalarOp::constant:
      return is_floating(e.compute) ? std::bit_cast<double>(i.bits) : static_cast<double>(static_cast<std::int64_t>(i.bits));
    case ScalarOp::negate: return -a;
    case ScalarOp::absolute: return std::abs(a);
    case ScalarOp::sign: return (a > 0) - (a < 0);
    case ScalarOp::square_root: return std::sqrt(a);
    case ScalarOp::exponential: return std::exp(a);
    case ScalarOp::logarithm: return std::log(a);
    case ScalarOp::hyperbolic_tangent: return std::tanh(a);
    case ScalarOp::error_function: return std::erf(a);
    case ScalarOp::sine: return std::sin(a);
    case ScalarOp::cosine: return std::cos(a);
    case ScalarOp::floor: return std::floor(a);
    case ScalarOp::rectify: return a <= 0 ? 0 : a;
    case ScalarOp::logical_not: return a == 0;
    case ScalarOp::add: return a + b;
    case ScalarOp::subtract: return a - b;
    case ScalarOp::multiply: return a * b;
    case ScalarOp::divide: return is_floating(e.compute) ? a / b : std::trunc(a / b);
    case ScalarOp::minimum: return b < a ? b : a;
    case ScalarOp::maximum: return a < b ? b : a;
    case ScalarOp::power: return std::pow(a, b);
    case ScalarOp::less: return a < b;
    case ScalarOp::less_equal: return a <= b;
    case ScalarOp::equal: return a == b;
    case ScalarOp::logical_and: return a != 0 && b != 0;
    case ScalarOp::logical_or: return a != 0 || b != 0;
    case ScalarOp::bit_and: return static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b));
    case ScalarOp::bit_or: return static_cast<double>(static_cast<std::int64_t>(a) | static_cast<std::int64_t>(b));
    case ScalarOp::bit_exclusive_or: return static_cast<double>(static_cast<std::int64_t>(a) ^ static_cast<std::int64_t>(b));
    case ScalarOp::shift_left: {
      if (b < 0 || b >= 8 * static_cast<double>(size_of(e.compute))) return 0;
      const auto moved = static_cast<std::uint64_t>(static_cast<std::int64_t>(a)) << static_cast<int>(b);
      return e.compute == DType::int32 ? static_cast<double>(static_cast<std::int32_t>(moved)) : static_cast<double>(static_cast<std::int64_t>(moved));
    }
    case ScalarOp::shift_right: return b < 0 || b >= 8 * static_cast<double>(size_of(e.compute)) ? -(a < 0) : std::floor(a / std::exp2(b));
    case ScalarOp::select: return a != 0 ? b : c;
    case ScalarOp::multiply_add: return std::fma(a, b, c);
  }
  throw std::logic_error{"an unknown scalar operation"};
}

// The outputs of the expression at every index of the domain: result[output][index].
inline std::vector<std::vector<double>> interpret(const Expression& e, const Shape& domain, std::span<const AnyArray> inputs) {
  std::vector<std::vector<double>> values, result(e.outputs.size());
  for (const auto& input : inputs) values.push_back(doubles(input));
  std::vector<double> in, registers;
  for_each_index(domain, [&](const std::vector<std::int64_t>& index) {
    in.clear();
    registers.clear();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Shape& shape = inputs[i].shape();
      std::size_t at = 0;
      for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
        const auto extent = static_cast<std::size_t>(shape[axis]);
        at = at * extent + (extent == 1 ? 0 : static_cast<std::size_t>(index[axis + domain.rank() - shape.rank()]));
      }
      in.push_back(values[i][at]);
    }
    for (const auto& instruction : e.code) registers.push_back(scalar(e, instruction, registers, in));
    for (std::size_t o = 0; o < e.outputs.size(); ++o) result[o].push_back(registers[e.outputs[o]]);
  });
  return result;
}

inline std::vector<double> reduced(const Reduce& reduce, const Shape& result, const std::vector<double>& values) {
  const double start = reduce.kind == ReduceKind::sum   ? 0
                       : reduce.kind == ReduceKind::min ? INFINITY
                                                        : -INFINITY;
  std::vector<double> sums(static_cast<std::size_t>(result.elements()), start);
  std::size_t next = 0;
  for_each_index(reduce.domain, [&](const std::vector<std::int64_t>& index) {
    std::size_t at = 0, skipped = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) {
      if (skipped < reduce.axes.size() && reduce.axes[skipped] == static_cast<std::int64_t>(axis)) ++skipped;
      else at = at * static_cast<std::size_t>(reduce.domain[axis]) + static_cast<std::size_t>(index[axis]);
    }
    const double value = values[next++];
    if (reduce.kind == ReduceKind::sum) sums[at] += value;
    else if (reduce.kind == ReduceKind::min) sums[at] = std::min(sums[at], value);
    else sums[at] = std::max(sums[at], value);
  });
  return sums;
}

// --- nodes ---

struct EvaluateOptions {
  KernelTier highest = KernelTier::reference;
  int threads = 1;
  KernelChoice choice{};
  StepContext context{};
  std::map<std::string, AnyArray> variables{};  // values at the step's start
  std::optional<DeviceKind> kind{};             // composite operations that it has a kernel for run as one
};

// The kernel of the highest allowed tier that takes these shapes. Throws if there is none.
inline std::unique_ptr<Executable> make_kernel(const AnyOperation& operation, const KernelRequest& request, KernelTier highest) {
  for (std::size_t tier = static_cast<std::size_t>(highest) + 1; tier-- > 0;)
    if (const Kernel* kernel = operation.slots()[static_cast<std::size_t>(DeviceKind::cpu)][tier].load())
      if (auto executable = kernel->make(request)) return executable;
  throw std::logic_error{"no kernel for " + std::string{operation.name()} + "(" + operation.attributes() + ")"};
}

// Runs a kernel into memory full of NaN. Throws if it leaves anything but zero in the padding of a layout.
inline std::vector<Held> run_kernel(const AnyOperation& operation, std::vector<Held> inputs, std::span<const TensorType> outputs,
                                    const EvaluateOptions& options = {}) {
  std::vector<TensorType> types;
  std::vector<Layout> offered;
  for (const auto& input : inputs) types.push_back(input.type), offered.push_back(input.layout);
  const auto executable = make_kernel(operation, {operation, types, outputs, offered, options.threads, options.choice}, options.highest);
  std::vector<Held> results;
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].layout != executable->input_layouts.at(i)) inputs[i] = relaid(inputs[i], executable->input_layouts[i]);
    from.push_back(inputs[i].data());
  }
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    results.push_back(held(outputs[o], executable->output_layouts.at(o)));
    std::memset(results[o].data(), 0xFF, results[o].memory.size_bytes());
    to.push_back(results[o].data());
  }
  AnyArray scratch{{DType::uint8, Shape{static_cast<std::int64_t>(executable->scratch_bytes)}}};
  std::memset(scratch.data(), 0xFF, scratch.size_bytes());
  executable->run({from.data(), to.data(), scratch.data(), options.context, nullptr});
  for (const auto& result : results)
    if (!padding_is_zero(result)) throw std::logic_error{std::string{operation.name()} + " left something in the padding"};
  return results;
}

inline std::vector<Held> evaluate_compute(const Node& node, std::vector<Held> inputs, const EvaluateOptions& options) {
  const AnyOperation& operation = node.get<Compute>()->operation;
  std::vector<AnyArray> arrays;
  std::vector<Held> results;
  const auto* map = operation.get<Map>();
  const auto* reduce = operation.get<Reduce>();
  if (map || reduce || operation.alias())
    for (const auto& input : inputs) arrays.push_back(array_of(input));
  if (operation.alias()) {
    results.push_back(held(node.outputs[0], Layout{}));
    if (arrays[0].size_bytes() > 0) std::memcpy(results[0].data(), arrays[0].data(), arrays[0].size_bytes());
  } else if (map || reduce) {
    const auto values = interpret(map ? *map->expression : *reduce->expression, map ? map->domain : reduce->domain, arrays);
    for (std::size_t o = 0; o < values.size(); ++o)
      results.push_back(held(array_of(node.outputs[o], reduce ? reduced(*reduce, node.outputs[o].shape, values[o]) : values[o])));
  } else {
    results = run_kernel(operation, std::move(inputs), node.outputs, options);
  }
  return results;
}

inline AnyArray given(const Input& input, std::span<const AnyArray> elements, const StepContext& context) {
  if (input.source == Input::Source::step) return Array<std::int64_t>{{}, {static_cast<std::int64_t>(context.step)}}.any();
  if (input.source == Input::Source::replica_id) return Array<std::int32_t>{{}, {static_cast<std::int32_t>(context.replica)}}.any();
  return elements[input.index];
}

// The wanted values. `inputs` are the components of the input element, by index. Ignores assignments; an all-reduce is
// that of a single replica.
inline std::vector<AnyArray> evaluate(const Graph& graph, std::span<const Value> wanted, std::span<const AnyArray> inputs,
                                      const EvaluateOptions& options = {}) {
  Graph whole = graph;
  whole.results().assign(wanted.begin(), wanted.end());
  whole = passes::remove_dead_code(passes::expand(whole, options.kind));
  std::vector<std::vector<Held>> values;
  for (const auto& node : whole.nodes()) {
    std::vector<Held> from;
    for (const auto& input : node.inputs) from.push_back(values[input.node][input.output]);
    const auto* placeholder = node.get<Placeholder>();
    if (const auto* input = node.get<Input>()) values.push_back({held(given(*input, inputs, options.context))});
    else if (const auto* constant = node.get<Constant>()) values.push_back({held(*constant->array)});
    else if (node.get<Compute>()) values.push_back(evaluate_compute(node, std::move(from), options));
    else if (const auto* read = node.get<Read>()) values.push_back({held(options.variables.at(whole.variables()[read->variable].name))});
    else if (node.get<Assign>()) values.emplace_back();
    else if (placeholder && placeholder->kind == CollectiveKind::all_reduce && graph.replicas() == 1) values.push_back(std::move(from));
    else throw std::logic_error{"the test evaluator does not run " + std::string{node.kind()}};
  }
  std::vector<AnyArray> results;
  for (const auto& value : whole.results()) results.push_back(array_of(values[value.node][value.output]));
  return results;
}

inline std::vector<AnyArray> evaluate(const Graph& graph, std::span<const AnyArray> inputs, const EvaluateOptions& options = {}) {
  return evaluate(graph, graph.results(), inputs, options);
}

inline AnyArray evaluate(AnyTensor wanted, std::span<const AnyArray> inputs, const EvaluateOptions& options = {}) {
  const Value value = wanted.value();
  return std::move(evaluate(wanted.graph(), {&value, 1}, inputs, options)[0]);
}

inline AnyTensor input(Graph& graph, const TensorType& type, std::uint32_t index) {
  return graph.tensor(graph.add({Input{Input::Source::element, index}, {}, {type}, {}, {}}));
}
template <Element T>
Tensor<T> input(Graph& graph, const Array<T>& like, std::uint32_t index) {
  return Tensor<T>{input(graph, like.any().type(), index)};
}

// --- values ---

// Uniform in [-1, 1); whole numbers from -4 to 3 if T is no floating type.
template <Element T>
Array<T> random_array(const Shape& shape, std::uint64_t seed) {
  PhiloxStream random{seed, 7};
  Array<T> result{shape};
  for (auto& value : result)
    value = is_floating(dtype_of<T>) ? static_cast<T>(2 * random.uniform() - 1) : static_cast<T>(static_cast<int>(random.below(8)) - 4);
  return result;
}

inline double largest_difference(const AnyArray& a, const AnyArray& b) {
  const auto x = doubles(a), y = doubles(b);
  if (!(a.shape() == b.shape())) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = std::abs(x[i] - y[i]) / (1 + std::abs(y[i]));
    if (std::isnan(difference)) return INFINITY;
    most = std::max(most, difference);
  }
  return most;
}

}  // namespace replicator::test
