// SPDX-License-Identifier: Apache-2.0
// The kernel of Map on GPUs by Thrust, for an expression that is one built-in operation on float32, or a cast. It is compiled
// with the program. thrust::transform keeps as many bytes in flight as the GPU's memory needs, even if elements are small. Under
// par_nosync it neither waits nor allocates, so it can be captured.
#pragma once

#include <thrust/execution_policy.h>
#include <thrust/system_error.h>
#include <thrust/transform.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/core/location.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/expressions/expression_plan.hpp>
#include <replicator/cuda/expressions/map.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail::cuda {

// Not inlined into each of Thrust's kernels, because that would take nvcc long.
[[gnu::noinline]] inline __device__ float apply_any(ScalarOp op, float a, float b, float c) { return apply(op, a, b, c); }

// A built-in operation on the elements of one or two inputs, and on constants. The operation is a value and not a type, because
// nvcc takes a second for each thrust::transform with another type. The quick operations are few, so that nvcc makes a loop for each.
struct BuiltIn {
  enum class Operand : std::uint8_t {
    first,
    second,
    constant
  };
  ScalarOp op;  // ScalarOp::input: the first operand unchanged
  Operand operands[3];
  float constants[3];

  __device__ float operator()(float x) const { return (*this)(x, x); }
  __device__ float operator()(float x, float y) const {
    const float a = operand(0, x, y), b = operand(1, x, y), c = operand(2, x, y);
    switch (op) {
      case ScalarOp::input: return a;
      case ScalarOp::rectify: return rectify(a);
      case ScalarOp::add: return plus(a, b);
      case ScalarOp::subtract: return minus(a, b);
      case ScalarOp::multiply: return times(a, b);
      default: return apply_any(op, a, b, c);
    }
  }

 private:
  __device__ float operand(int place, float x, float y) const {
    return operands[place] == Operand::first    ? x
           : operands[place] == Operand::second ? y
                                                : constants[place];
  }
};

// A cast through float32.
template <class From, class To>
struct StoredAs {
  __device__ To operator()(From x) const { return Storing<To>::of(value_of(x)); }
};

// What Thrust is asked to compute. `inputs` are one or two numbers of the Map's inputs.
struct BuiltInMap {
  BuiltIn built_in{};
  std::vector<std::size_t> inputs;
  DType from = DType::float32, to = DType::float32;

  // Empty unless the Map computes in float32, and is one operation on float32 or a cast from or to bfloat16. All elements must
  // lie in the domain's order.
  static std::optional<BuiltInMap> of(const Map& map, const Operands& operands) {
    const Expression& e = *map.expression;
    if (e.compute != DType::float32 || e.outputs.size() != 1) return std::nullopt;
    const auto& whole = e.code[e.outputs[0]];
    BuiltInMap result;
    result.to = map.dtypes[0];
    result.built_in.op = whole.op;
    const std::uint16_t values[] = {whole.op == ScalarOp::input ? e.outputs[0] : whole.a, whole.b, whole.c};
    for (int place = 0; place < std::max(1, operands_of(whole.op)); ++place)
      if (!result.put(place, e.code[values[place]], operands)) return std::nullopt;
    const auto has_types = [&](DType from, DType to) { return result.from == from && result.to == to; };
    const bool is_cast = has_types(DType::float32, DType::bfloat16) || has_types(DType::bfloat16, DType::float32);
    const bool is_taken = has_types(DType::float32, DType::float32) || (is_cast && whole.op == ScalarOp::input);
    if (result.inputs.empty() || !is_taken) return std::nullopt;
    return result;
  }

 private:
  // False where the value cannot be an operand.
  bool put(int place, const ScalarInstruction& value, const Operands& all) {
    if (value.op == ScalarOp::constant) {
      built_in.operands[place] = BuiltIn::Operand::constant;
      built_in.constants[place] = static_cast<float>(std::bit_cast<double>(value.bits));
      return true;
    }
    if (value.op != ScalarOp::input) return false;
    const Operand& input = all.inputs[value.a];
    if (input.kind != OperandKind::linear && all.elements != 1) return false;
    const auto number = static_cast<std::size_t>(std::find(inputs.begin(), inputs.end(), value.a) - inputs.begin());
    if (number == inputs.size()) {
      if (number == 2 || (number == 1 && input.dtype != from)) return false;
      from = input.dtype;
      inputs.push_back(value.a);
    }
    built_in.operands[place] = number == 0 ? BuiltIn::Operand::first : BuiltIn::Operand::second;
    return true;
  }
};

// When it is merged with other Maps, it is interpreted as they are.
class ThrustMap final : public InterpretedMap {
 public:
  ThrustMap(const Map& map, const KernelRequest& request, const MapPlan& plan, const ScalarProgram& program, BuiltInMap built_in)
      : InterpretedMap{map, request, plan, program}, map_{std::move(built_in)} {}

  void run(const Launch& launch) const override {
    if (elements() == 0) return;
    try {
      if (map_.from == DType::bfloat16) transform(launch, StoredAs<Bfloat16Word, float>{}, input<Bfloat16Word>(launch, 0));
      else if (map_.to == DType::bfloat16) transform(launch, StoredAs<float, Bfloat16Word>{}, input<float>(launch, 0));
      else if (map_.inputs.size() == 1) transform(launch, map_.built_in, input<float>(launch, 0));
      else transform(launch, map_.built_in, input<float>(launch, 0), input<float>(launch, 1));
    } catch (const thrust::system_error& error) {
      fail(static_cast<cudaError_t>(error.code().value()), "thrust::transform", Location{__FILE__, __LINE__});
    }
  }

 private:
  template <class T>
  const T* input(const Launch& launch, std::size_t i) const {
    return reinterpret_cast<const T*>(launch.inputs[map_.inputs[i]]);
  }
  // Does not use ::cuda::proclaim_copyable_arguments, which enables Hopper's bulk copies. For these, CCCL 3.0 keeps the tile size
  // that was enough for a kernel's first call, and that call may have had few elements.
  template <class F, class First, class... Second>
  void transform(const Launch& launch, const F& functor, const First* first, const Second*... second) const {
    using Out = std::invoke_result_t<F, First, Second...>;
    thrust::transform(thrust::cuda::par_nosync.on(stream_of(launch.stream)), first, first + elements(), second...,
                      reinterpret_cast<Out*>(launch.outputs[0]), functor);
  }

  BuiltInMap map_;
};

inline std::unique_ptr<Executable> make_thrust_map(const KernelRequest& request) {
  const auto& map = *request.operation.get<Map>();
  const auto plan = plan_of(map, request);
  auto built_in = BuiltInMap::of(map, plan.operands);
  if (!built_in) return nullptr;
  const auto program = compile_scalar_program(*map.expression, plan.operands, map.dtypes);
  return program ? std::make_unique<ThrustMap>(map, request, plan, *program, std::move(*built_in)) : nullptr;
}
inline constexpr Kernel thrust_map{"Thrust", &make_thrust_map};
inline const bool thrust_map_registered = register_kernel<Map>(DeviceKind::cuda, KernelTier::library, &thrust_map);

}  // namespace replicator::detail::cuda
