// SPDX-License-Identifier: Apache-2.0
// A scalar expression as data. An elementwise functor that is called once on symbols records one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/core/number.hpp>
#include <replicator/core/number_text.hpp>

namespace replicator::detail {

// Comparisons and logic return 1 or 0 in the compute type; logic treats every value but zero as true.
enum class ScalarOp : std::uint8_t {
  input,     // operand a: index of the input
  constant,  // bits: of a double for a floating compute type, otherwise of an int64
  negate,
  absolute,
  sign,
  square_root,
  exponential,
  logarithm,
  hyperbolic_tangent,
  error_function,
  sine,
  cosine,
  floor,
  rectify,  // a <= 0 ? 0 : a
  logical_not,
  add,
  subtract,
  multiply,
  divide,
  minimum,  // b < a ? b : a
  maximum,  // a < b ? b : a
  power,
  less,
  less_equal,
  equal,
  logical_and,
  logical_or,
  bit_and,  // this and the next four: of integers only
  bit_or,
  bit_exclusive_or,
  shift_left,    // a * 2^b, wrapped around; 0 unless 0 <= b < bits of the type
  shift_right,   // a / 2^b, rounded down; as by the largest b unless 0 <= b < bits of the type
  select,        // a != 0 ? b : c
  multiply_add,  // fused: a * b + c with one rounding
};

// The type in which elements of `dtype` are computed: int32 for uint8 and bool, float32 for bfloat16, otherwise `dtype`.
constexpr DType compute_type(DType dtype) {
  if (dtype == DType::bfloat16) return DType::float32;
  return dtype == DType::uint8 || dtype == DType::boolean ? DType::int32 : dtype;
}

constexpr int operands_of(ScalarOp op) {
  if (op <= ScalarOp::constant) return 0;
  if (op <= ScalarOp::logical_not) return 1;
  return op < ScalarOp::select ? 2 : 3;
}

// Whether floating types do not have the operation.
constexpr bool needs_integers(ScalarOp op) { return op >= ScalarOp::bit_and && op <= ScalarOp::shift_right; }

constexpr std::string_view name_of(ScalarOp op) {
  constexpr std::string_view names[] = {"input", "constant", "negate", "abs", "sign", "sqrt", "exp", "log", "tanh", "erf",
                                        "sin", "cos", "floor", "relu", "not", "add", "sub", "mul", "div", "min", "max",
                                        "pow", "less", "less_equal", "equal", "and", "or", "bit_and", "bit_or", "bit_xor", "shift_left",
                                        "shift_right", "select", "fma"};
  return names[static_cast<std::size_t>(op)];
}

// One operation on the results of earlier instructions.
struct ScalarInstruction {
  ScalarOp op = ScalarOp::constant;
  std::uint16_t a = 0, b = 0, c = 0;  // earlier instructions (or the input's index)
  std::uint64_t bits = 0;

  friend bool operator==(const ScalarInstruction&, const ScalarInstruction&) = default;
};

// Instructions in order; each reads earlier ones. `outputs` lists instructions.
//
// Inputs of another dtype are converted to `compute` when loaded. Outputs are converted to their dtype when stored:
// floating to integer truncates, to bool compares with 0 (!=), to bfloat16 rounds once.
struct Expression {
  DType compute = DType::float32;  // float32, float64, int32 or int64
  std::uint16_t inputs = 0;
  std::vector<ScalarInstruction> code;
  std::vector<std::uint16_t> outputs;

  static constexpr std::size_t most_instructions = 1 << 15;  // then the numbers that kernels give to values and constants fit 16 bits

  // Returns the number of the instruction, or of an equal one that exists. Throws BuildError beyond most_instructions.
  template <class = void>
  std::uint16_t append(ScalarInstruction instruction);
  std::uint16_t input(std::uint16_t index) { return append({ScalarOp::input, index, 0, 0, 0}); }
  std::uint16_t constant(Number value) {
    const auto bits = is_floating(compute) ? std::bit_cast<std::uint64_t>(value.real()) : static_cast<std::uint64_t>(value.whole());
    return append({ScalarOp::constant, 0, 0, 0, bits});
  }
  std::uint16_t apply(ScalarOp op, std::uint16_t a, std::uint16_t b = 0, std::uint16_t c = 0) {
    return append({op, a, b, c, 0});
  }

  template <class V>
  void describe(V& v) const {
    v("compute", compute);
    v("inputs", inputs);
    v("code", code_words());
    v("outputs", outputs);
  }
  template <class = void>
  std::vector<std::uint64_t> code_words() const;

  // Text such as "relu(add(x0, x1))", of at most `length` characters; a longer text is cut and ends with "...".
  std::string text(std::size_t length = 1000) const {
    std::string result;
    for (const auto output : outputs) {
      if (!result.empty()) result += "; ";
      add_text(result, output, length);
    }
    if (result.size() > length) result.replace(length - 3, std::string::npos, "...");
    return result;
  }

 private:
  // Stops at `length`. An instruction is written out for each of its uses, so the text may double with every instruction.
  void add_text(std::string& text, std::uint16_t index, std::size_t length) const {
    if (text.size() > length) return;
    const auto& i = code[index];
    if (operands_of(i.op) == 0) {
      text += leaf_text(i);
      return;
    }
    text += name_of(i.op);
    const std::uint16_t operands[] = {i.a, i.b, i.c};
    for (int o = 0; o < operands_of(i.op); ++o) {
      text += o == 0 ? "(" : ", ";
      add_text(text, operands[o], length);
    }
    text += ")";
  }
  std::string leaf_text(const ScalarInstruction& leaf) const {
    if (leaf.op == ScalarOp::input) return std::string{"x"}.append(std::to_string(leaf.a));
    return is_floating(compute) ? number_text(std::bit_cast<double>(leaf.bits)) : std::to_string(static_cast<std::int64_t>(leaf.bits));
  }
};

template <class>
std::uint16_t Expression::append(ScalarInstruction instruction) {
  for (std::size_t i = 0; i < code.size(); ++i)
    if (code[i] == instruction) return static_cast<std::uint16_t>(i);
  if (code.size() == most_instructions)
    throw BuildError{"an elementwise expression can have " + std::to_string(most_instructions) +
                     " instructions: share the work among several rp::map"};
  code.push_back(instruction);
  return static_cast<std::uint16_t>(code.size() - 1);
}

template <class>
std::vector<std::uint64_t> Expression::code_words() const {
  std::vector<std::uint64_t> words;
  words.reserve(2 * code.size());
  for (const auto& i : code) {
    words.push_back(static_cast<std::uint64_t>(i.op) | (std::uint64_t{i.a} << 8) | (std::uint64_t{i.b} << 24) |
                    (std::uint64_t{i.c} << 40));
    words.push_back(i.bits);
  }
  return words;
}

using ExpressionPtr = std::shared_ptr<const Expression>;

}  // namespace replicator::detail
