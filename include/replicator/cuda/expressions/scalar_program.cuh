// SPDX-License-Identifier: Apache-2.0
// An expression over broadcast operands as plain data, and the interpreter that each thread runs on it. The data travels with the
// launch, and the executable keeps none of it in a device's memory. So equal executables serve all GPUs.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/expressions/expression_plan.hpp>
#include <replicator/cuda/expressions/operands.hpp>
#include <replicator/graph/expression.hpp>

namespace replicator::detail::cuda {

// One step of the interpreter. Operands are registers; for an input or a constant, `a` is its index.
struct ScalarStep {
  ScalarOp op;
  std::uint8_t out, a, b, c;
};

// A program with the members that rtc/map.cuh and rtc/reduction.cuh use.
struct ScalarProgram {
  static constexpr std::size_t most_steps = 256, most_registers = 64, most_constants = 48, most_inputs = 24, most_outputs = 8;
  static constexpr std::size_t slots = most_registers;
  static constexpr int at_once = 1, lanes = 1;
  using Index = long long;

  struct Input {
    const std::byte* data;
    std::int64_t strides[Shape::max_rank];  // in elements, along the domain's axes; 0 where it is broadcast
    DType dtype;
    OperandKind kind;
  };
  struct Output {
    std::byte* data;
    DType dtype;
    std::uint8_t value;  // register
  };

  std::int64_t elements;
  std::int64_t extents[Shape::max_rank];
  std::uint64_t constants[most_constants];  // bits of values of the compute type
  Input inputs[most_inputs];
  Output outputs[most_outputs];
  ScalarStep steps[most_steps];
  std::uint16_t step_count;
  std::uint8_t rank, input_count, output_count;

  // Offset in an input of element `index` of the domain, in row-major order.
  __device__ std::int64_t offset_of(const Input& input, std::int64_t index) const {
    if (input.kind == OperandKind::linear) return index;
    if (input.kind == OperandKind::scalar) return 0;
    return elements <= UINT32_MAX ? strided_offset(input, static_cast<std::uint32_t>(index))
                                  : strided_offset(input, static_cast<std::uint64_t>(index));
  }

  // Leaves the value of output o in register slot_of(o).
  template <class T>
  __device__ void evaluate(std::int64_t index, T* registers) const {
    for (int s = 0; s < step_count; ++s) {
      const ScalarStep step = steps[s];
      if (step.op == ScalarOp::input)
        registers[step.out] = load<T>(inputs[step.a].dtype, inputs[step.a].data, offset_of(inputs[step.a], index));
      else if (step.op == ScalarOp::constant)
        registers[step.out] = *reinterpret_cast<const T*>(&constants[step.a]);
      else
        registers[step.out] = apply(step.op, registers[step.a], registers[step.b], registers[step.c]);
    }
  }

  __device__ int slot_of(int output) const { return outputs[output].value; }
  template <class T>
  __device__ void store_all(std::int64_t at, const T* registers) const {
    for (int o = 0; o < output_count; ++o) store(outputs[o].dtype, outputs[o].data, at, registers[slot_of(o)]);
  }
  template <class T>
  __device__ void finish(std::int64_t at, const T* results) const {
    for (int o = 0; o < output_count; ++o) store(outputs[o].dtype, outputs[o].data, at, results[o]);
  }

 private:
  template <class Index>
  __device__ std::int64_t strided_offset(const Input& input, Index index) const {
    std::int64_t offset = 0;
    for (int axis = rank; axis-- > 0;) {
      const Index extent = static_cast<Index>(extents[axis]);
      const Index outer = index / extent;
      offset += static_cast<std::int64_t>(index - outer * extent) * input.strides[axis];
      index = outer;
    }
    return offset;
  }
};
static_assert(sizeof(ScalarProgram) < 4000, "the program is an argument of kernels, which have room for 4 KiB everywhere");

namespace detail {

// Compiles an expression to steps. A register is free again after the last use of its value.
class ScalarCompiler {
 public:
  explicit ScalarCompiler(const Expression& expression)
      : expression_{expression}, last_use_(expression.code.size(), unused), register_(expression.code.size()) {}

  // False where the expression is too large.
  bool compile(ScalarProgram& program) {
    find_last_uses();
    for (std::size_t i = 0; i < expression_.code.size(); ++i)
      if (last_use_[i] != unused && !emit(program, i)) return false;
    if (expression_.outputs.size() > ScalarProgram::most_outputs) return false;
    for (const auto output : expression_.outputs) program.outputs[program.output_count++].value = register_[output];
    return true;
  }

 private:
  static constexpr std::size_t unused = 0, always = ~std::size_t{0};

  void find_last_uses() {
    for (const auto output : expression_.outputs) last_use_[output] = always;
    for (std::size_t i = expression_.code.size(); i-- > 0;) {
      if (last_use_[i] == unused) continue;
      const auto& instruction = expression_.code[i];
      const std::uint16_t operands[] = {instruction.a, instruction.b, instruction.c};
      for (int o = 0; o < operands_of(instruction.op); ++o)
        if (last_use_[operands[o]] == unused) last_use_[operands[o]] = i;
    }
  }

  bool emit(ScalarProgram& program, std::size_t i) {
    const auto& instruction = expression_.code[i];
    if (program.step_count == ScalarProgram::most_steps) return false;
    ScalarStep step{instruction.op, 0, 0, 0, 0};
    if (instruction.op == ScalarOp::input) {
      step.a = static_cast<std::uint8_t>(instruction.a);
    } else if (instruction.op == ScalarOp::constant) {
      if (constants_ == ScalarProgram::most_constants) return false;
      step.a = static_cast<std::uint8_t>(constants_);
      program.constants[constants_++] = constant_bits(instruction.bits);
    } else {
      require_defined(instruction.op);
      const std::uint16_t operands[] = {instruction.a, instruction.b, instruction.c};
      std::uint8_t* const places[] = {&step.a, &step.b, &step.c};
      for (int o = 0; o < operands_of(instruction.op); ++o) *places[o] = register_[operands[o]];
      for (int o = 0; o < operands_of(instruction.op); ++o)
        if (last_use_[operands[o]] == i) {
          free_.push_back(register_[operands[o]]);
          last_use_[operands[o]] = always;  // an operand may be named twice
        }
    }
    if (!take(step.out)) return false;
    register_[i] = step.out;
    program.steps[program.step_count++] = step;
    return true;
  }

  bool take(std::uint8_t& out) {
    if (!free_.empty()) {
      out = free_.back();
      free_.pop_back();
      return true;
    }
    out = registers_;
    return registers_++ < ScalarProgram::most_registers;
  }

  std::uint64_t constant_bits(std::uint64_t bits) const {
    if (expression_.compute == DType::float32) return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    return bits;  // an int32 is read from the low half
  }

  void require_defined(ScalarOp op) const {
    if (only_floating(op) && !is_floating(expression_.compute))
      throw BuildError{"the operation " + std::string{name_of(op)} + " was asked for on " + std::string{name_of(expression_.compute)} +
                       ", which only floating types have: cast to float32 or float64 first"};
  }

  const Expression& expression_;
  std::vector<std::size_t> last_use_;
  std::vector<std::uint8_t> register_;
  std::vector<std::uint8_t> free_;
  std::uint8_t registers_ = 0;
  std::size_t constants_ = 0;
};

inline void place_operands(ScalarProgram& program, const Operands& operands) {
  program.elements = operands.elements;
  program.rank = static_cast<std::uint8_t>(operands.extents.size());
  std::copy(operands.extents.begin(), operands.extents.end(), program.extents);
  for (const auto& operand : operands.inputs) {
    auto& input = program.inputs[program.input_count++];
    std::copy(operand.strides.begin(), operand.strides.end(), input.strides);
    input.dtype = operand.dtype;
    input.kind = operand.kind;
  }
}

}  // namespace detail

// Compiles the expression on these operands. Empty where it is too large for a kernel's argument. Throws BuildError for
// operations that the compute type lacks.
inline std::optional<ScalarProgram> compile_scalar_program(const Expression& expression, const Operands& operands, std::span<const DType> outputs) {
  ScalarProgram program{};
  if (operands.inputs.size() > ScalarProgram::most_inputs || !detail::ScalarCompiler{expression}.compile(program)) return std::nullopt;
  for (std::size_t o = 0; o < outputs.size(); ++o) program.outputs[o].dtype = outputs[o];
  detail::place_operands(program, operands);
  return program;
}

// The program with the addresses of a launch's operands.
inline ScalarProgram bind(ScalarProgram program, const std::byte* const* inputs, std::byte* const* outputs) {
  for (int i = 0; i < program.input_count; ++i) program.inputs[i].data = inputs[i];
  for (int o = 0; o < program.output_count; ++o) program.outputs[o].data = outputs[o];
  return program;
}

}  // namespace replicator::detail::cuda
