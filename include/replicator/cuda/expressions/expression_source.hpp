// SPDX-License-Identifier: Apache-2.0
// Writes the CUDA C++ source of kernels that evaluate one expression, for NVRTC. The source is a pure function of the expression
// and of how its operands lie. The operands' extents are not in it, so operands that lie alike have the same source. (It only
// depends on whether the domain has 2^31 elements or more, and on the largest power of two that divides the innermost extents.)
//
// The arithmetic calls the functions of rtc/ in the expression's order. The interpreter calls the same functions, so both give the same bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/cuda/expressions/expression_plan.hpp>
#include <replicator/graph/expression.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::detail::cuda {

// A source, and the words of its kernels' first argument. That argument is a Program; its addresses are left out.
struct ExpressionSource {
  std::string text;
  std::string program;  // the part of it that is the struct Program
  std::vector<std::uint64_t> words;
  // words[first_address + i] is the address of input i. The addresses of the outputs follow.
  static constexpr std::size_t first_address = 1;
  int at_once = 1;  // elements that a thread of map_elements takes at a time
  int lanes = 1;    // of a reduction
};

// Arguments of kernels have room for this many words on every GPU.
inline constexpr std::size_t most_argument_words = 4000 / sizeof(std::uint64_t);
inline constexpr std::size_t most_compiled_instructions = 4096;
// Larger expressions have enough loads in flight by themselves, and need their registers for one element.
inline constexpr std::size_t most_instructions_at_once = 64;

namespace detail {

constexpr std::string_view device_function(ScalarOp op) {
  constexpr std::string_view names[] = {"", "", "negate", "absolute", "sign", "square_root", "exponential", "logarithm", "hyperbolic_tangent", "error_function",
                                        "sine", "cosine", "rounded_down", "rectify", "logical_not", "plus", "minus", "times", "quotient",
                                        "minimum", "maximum", "power", "less", "less_equal", "equal", "logical_and", "logical_or", "bit_and", "bit_or",
                                        "bit_exclusive_or", "shift_left", "shift_right", "select", "fused_multiply_add"};
  return names[static_cast<std::size_t>(op)];
}

// The type of values in registers.
constexpr std::string_view device_type(DType compute) {
  switch (compute) {
    case DType::float32: return "float";
    case DType::float64: return "double";
    case DType::int32: return "int";
    default: return "long long";
  }
}
// The type of elements in memory.
constexpr std::string_view stored_type(DType dtype) {
  switch (dtype) {
    case DType::bfloat16: return "Bfloat16Word";
    case DType::boolean: return "BoolByte";
    case DType::uint8: return "unsigned char";
    default: return device_type(dtype);
  }
}

// Writes the struct Program: its operands, and the members that rtc/map.cuh and rtc/reduction.cuh use.
class ProgramWriter {
 public:
  // evaluate() and store_all() take a group of `lanes` neighbouring elements. A reduction has an epilogue, whose inputs are its
  // results and the last operands.
  ProgramWriter(const Expression& expression, const Operands& operands, std::span<const DType> outputs, int lanes, const Expression* epilogue)
      : expression_{expression}, operands_{operands}, outputs_{outputs}, lanes_{lanes}, epilogue_{epilogue}, value_{device_type(expression.compute)} {
    find_used();
    for (std::size_t i = 0; i < operands.inputs.size(); ++i)
      if (read_[i] && operands.inputs[i].kind == OperandKind::strided) strided_.push_back(i);
  }

  ExpressionSource write() && {
    source_.at_once = groups() * lanes_;
    add("// ", expression_.text(200), "\nstruct Program {\n");
    write_members();
    add("\n  using Index = ", index_type(), ";\n  static constexpr int lanes = ", lanes_, ", at_once = ", groups(), ", slots = ", expression_.outputs.size(),
        ", most_outputs = slots, output_count = slots;\n");
    add("  __device__ static constexpr int slot_of(int output) { return output; }\n");
    write_evaluate();
    if (epilogue_) write_finish();
    else write_store_all();
    add("};\nstatic_assert(sizeof(Program) == ", source_.words.size() * sizeof(std::uint64_t), ");\n");
    source_.program = source_.text;
    return std::move(source_);
  }

 private:
  void add(const auto&... parts) {
    const auto text = [](const auto& part) {
      if constexpr (requires { std::to_string(part); }) return std::to_string(part);
      else return std::string{part};
    };
    ((source_.text += text(parts)), ...);
  }

  void find_used() {
    used_.resize(expression_.code.size());
    read_.resize(operands_.inputs.size());
    for (const auto output : expression_.outputs) used_[output] = true;
    for (std::size_t i = expression_.code.size(); i-- > 0;) {
      const auto& [op, a, b, c, bits] = expression_.code[i];
      if (!used_[i]) continue;
      if (op == ScalarOp::input) read_[a] = true;
      const std::uint16_t operands[] = {a, b, c};
      for (int o = 0; o < operands_of(op); ++o) used_[operands[o]] = true;
    }
  }

  // The groups that a thread loads before it stores the first one. An H200's memory needs 48 KiB in flight per multiprocessor,
  // which has up to 2,048 threads. Broadcast inputs do not count, because caches have them.
  int groups() const {
    constexpr std::size_t enough = 48 * 1024 / 2048;
    if (expression_.code.size() > most_instructions_at_once) return 1;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < read_.size(); ++i)
      if (const auto& input = operands_.inputs[i]; read_[i] && std::find(input.strides.begin(), input.strides.end(), 0) == input.strides.end())
        bytes += size_of(input.dtype) * static_cast<std::size_t>(lanes_);
    return std::max(4 / lanes_, bytes < enough ? 2 : 1);
  }

  // In the order of source_.words. All members have 8 bytes, except for Dividers, which have 16.
  void write_members() {
    add("  long long elements;\n");
    source_.words.push_back(static_cast<std::uint64_t>(operands_.elements));
    for (std::size_t i = 0; i < operands_.inputs.size(); ++i) add("  const ", stored_type(operands_.inputs[i].dtype), "* x", i, ";\n");
    for (std::size_t o = 0; o < outputs_.size(); ++o) add("  ", stored_type(outputs_[o]), "* y", o, ";\n");
    source_.words.resize(source_.words.size() + operands_.inputs.size() + outputs_.size());
    if (epilogue_) write_constants();
    if (strided_.empty()) return;
    add("  Divider extents[", rank(), "];\n  long long strides[", strided_.size(), "][", rank(), "];\n");
    for (const auto extent : operands_.extents)
      for (const auto word : divider_words(extent)) source_.words.push_back(word);
    for (const auto i : strided_)
      for (const auto stride : operands_.inputs[i].strides) source_.words.push_back(static_cast<std::uint64_t>(stride));
  }

  // Those of an epilogue are no part of the source, because reductions of other extents divide by other numbers.
  void write_constants() {
    std::size_t count = 0;
    for (const auto& instruction : epilogue_->code)
      if (instruction.op == ScalarOp::constant) source_.words.push_back(bits_of(instruction.bits)), ++count;
    if (count > 0) add("  ", value_, " constants[", count, "][8 / sizeof(", value_, ")];\n");
  }

  void write_evaluate() {
    add("  __device__ void evaluate(Index ", lanes_ > 1 ? "group" : "index", ", ", value_, "* y) const {\n");
    if (lanes_ > 1) add("    const Index index = group * lanes;\n");
    if (!strided_.empty()) write_coordinates();
    if (lanes_ > 1) write_loads();
    for (std::size_t i = 0; i < expression_.code.size(); ++i)
      if (used_[i]) add("    const ", value_, " v", i, " = ", value_of(i), ";\n");
    for (std::size_t o = 0; o < expression_.outputs.size(); ++o)
      add("    y[", o, lanes_ > 1 ? " * lanes + j" : "", "] = v", expression_.outputs[o], ";\n");
    add(lanes_ > 1 ? "    }\n  }\n" : "  }\n");
  }
  // Loads groups of elements, and begins the loop over their lanes.
  void write_loads() {
    for (std::size_t i = 0; i < expression_.code.size(); ++i) {
      if (!used_[i] || expression_.code[i].op != ScalarOp::input) continue;
      const std::size_t input = expression_.code[i].a;
      if (is_group(input)) add("    ", value_, " l", i, "[lanes];\n    load_lanes<lanes>(l", i, ", x", input, " + ", offset_of(input), ");\n");
      else add("    const ", value_, " l", i, " = ", load_of(input), ";\n");
    }
    add("#pragma unroll\n    for (int j = 0; j < lanes; ++j) {\n");
  }
  // Whether each lane has its own element of the input.
  bool is_group(std::size_t input) const {
    const auto& operand = operands_.inputs[input];
    return operand.kind == OperandKind::linear || (operand.kind == OperandKind::strided && operand.strides.back() != 0);
  }
  // The element's coordinate along each axis. Numbers below 2^31 are divided by a multiplication.
  void write_coordinates() {
    add("    const Index r", rank() - 1, " = index;\n");
    for (std::size_t axis = rank(); axis-- > 1;) {
      add("    const Index r", axis - 1, " = quotient_of(r", axis, ", extents[", axis, "]);\n");
      if (is_walked(axis))
        add("    const Index c", axis, " = r", axis, " - r", axis - 1, " * static_cast<Index>(extents[", axis, "].divisor);\n");
    }
    if (is_walked(0)) add("    const Index c0 = r0;\n");
  }
  std::string_view index_type() const { return operands_.elements < std::int64_t{1} << 31 ? "unsigned" : "long long"; }
  bool is_walked(std::size_t axis) const {
    return std::any_of(strided_.begin(), strided_.end(), [&](std::size_t i) { return operands_.inputs[i].strides[axis] != 0; });
  }

  std::string value_of(std::size_t i) const {
    const auto& instruction = expression_.code[i];
    if (instruction.op != ScalarOp::input) return call_of(instruction);
    if (lanes_ == 1) return load_of(instruction.a);
    return "l" + std::to_string(i) + (is_group(instruction.a) ? "[j]" : "");
  }
  std::string call_of(const ScalarInstruction& instruction) const {
    if (instruction.op == ScalarOp::constant) return constant_of(instruction.bits);
    std::string call{device_function(instruction.op)};
    const std::uint16_t operands[] = {instruction.a, instruction.b, instruction.c};
    for (int o = 0; o < operands_of(instruction.op); ++o) call += (o ? ", v" : "(v") + std::to_string(operands[o]);
    return call + ")";
  }
  std::string load_of(std::size_t input) const {
    return "load<" + std::string{value_} + ">(x" + std::to_string(input) + ", " + offset_of(input) + ")";
  }
  // Strides of 0 and 1 are known to the source, because a multiplication costs more than the arithmetic of most expressions.
  std::string offset_of(std::size_t input) const {
    const auto& operand = operands_.inputs[input];
    if (operand.kind == OperandKind::linear) return "index";
    if (operand.kind == OperandKind::scalar) return "0";
    std::string offset;
    const auto row = std::find(strided_.begin(), strided_.end(), input) - strided_.begin();
    for (std::size_t axis = 0; axis < rank(); ++axis) {
      if (operand.strides[axis] == 0) continue;
      offset += (offset.empty() ? "c" : " + c") + std::to_string(axis);
      if (operand.strides[axis] != 1) offset += " * static_cast<Index>(strides[" + std::to_string(row) + "][" + std::to_string(axis) + "])";
    }
    return offset;
  }
  // Of a constant as a value of the type of computation.
  std::uint64_t bits_of(std::uint64_t bits) const {
    return expression_.compute == DType::float32 ? std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits))) : bits;
  }
  // Written with its exact bits.
  std::string constant_of(std::uint64_t bits) const {
    char text[80];
    switch (expression_.compute) {
      case DType::float32: std::snprintf(text, sizeof text, "__uint_as_float(0x%08xu)", static_cast<unsigned>(bits_of(bits))); break;
      case DType::float64: std::snprintf(text, sizeof text, "__longlong_as_double(0x%016llxll)", static_cast<unsigned long long>(bits)); break;
      case DType::int32: std::snprintf(text, sizeof text, "static_cast<int>(0x%08xu)", static_cast<unsigned>(bits)); break;
      default: std::snprintf(text, sizeof text, "static_cast<long long>(0x%016llxull)", static_cast<unsigned long long>(bits));
    }
    return text;
  }

  // Computes the outputs' elements from the results.
  void write_finish() {
    add("  __device__ void finish(long long index, const ", value_, "* results) const {\n");
    const std::size_t results = expression_.outputs.size(), reduced = expression_.inputs;
    for (std::size_t i = 0, constants = 0; i < epilogue_->code.size(); ++i) {
      const auto& instruction = epilogue_->code[i];
      add("    const ", value_, " v", i, " = ");
      if (instruction.op == ScalarOp::constant) add("constants[", constants++, "][0];\n");
      else if (instruction.op != ScalarOp::input) add(call_of(instruction), ";\n");
      else if (instruction.a < results) add("results[", instruction.a, "];\n");
      else add(load_of(reduced + instruction.a - results), ";\n");
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o) add("    cuda::store(y", o, ", index, v", epilogue_->outputs[o], ");\n");
    add("  }\n");
  }

  void write_store_all() {
    add("  __device__ void store_all(Index at, const ", value_, "* y) const {\n");
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      if (lanes_ > 1) add("    store_lanes<lanes>(y", o, " + at * lanes, y + ", o, " * lanes);\n");
      else add("    cuda::store(y", o, ", at, y[", o, "]);\n");
    }
    add("  }\n");
  }
  std::size_t rank() const { return operands_.extents.size(); }

  const Expression& expression_;
  const Operands& operands_;
  std::span<const DType> outputs_;
  int lanes_;
  const Expression* epilogue_;
  std::string_view value_;
  std::vector<bool> used_, read_;     // by instruction; by input
  std::vector<std::size_t> strided_;  // numbers of inputs
  ExpressionSource source_;
};

inline bool can_be_compiled(const Expression& expression) {
  return expression.code.size() <= most_compiled_instructions &&
         (is_floating(expression.compute) || std::none_of(expression.code.begin(), expression.code.end(), [](const auto& i) { return only_floating(i.op); }));
}

// Empty where the interpreter must run the expression, or must say why it cannot be run.
inline std::optional<ExpressionSource> program_source(const Expression& expression, const Operands& operands, std::span<const DType> outputs,
                                                      int lanes, const Expression* epilogue = nullptr) {
  if (!can_be_compiled(expression) || (epilogue && !can_be_compiled(*epilogue))) return std::nullopt;
  auto source = ProgramWriter{expression, operands, outputs, lanes, epilogue}.write();
  if (source.words.size() > most_argument_words) return std::nullopt;
  return source;
}

inline std::string in_source(std::string_view header, const std::string& program, const std::string& kernels) {
  return "#include <replicator/cuda/rtc/divider.cuh>\n#include <replicator/cuda/rtc/storage.cuh>\n#include <replicator/cuda/rtc/" +
         std::string{header} + ">\n\nnamespace replicator::detail::cuda {\n\n" + program + "\n" + kernels + "\n}  // namespace replicator::detail::cuda\n";
}

inline std::string kernel_source(const std::string& name, const std::string& threads, const std::string& parameters, const std::string& body) {
  return "extern \"C\" __global__ void __launch_bounds__(" + threads + ") compiled_" + name + "(const __grid_constant__ Program program" + parameters +
         ") {\n  " + body + ";\n}\n";
}

}  // namespace detail

// Source of the kernel compiled_map(Program). Empty where the expression is too large, or has operations that its compute type lacks.
inline std::optional<ExpressionSource> map_source(const Expression& expression, const Operands& operands, std::span<const DType> outputs) {
  const int lanes = expression.code.size() <= most_instructions_at_once ? lanes_of(operands, outputs) : 1;
  auto source = detail::program_source(expression, operands, outputs, lanes);
  if (!source) return std::nullopt;
  const std::string value{detail::device_type(expression.compute)};
  source->text = detail::in_source("map.cuh", source->text, detail::kernel_source("map", "block_threads", "", "map_elements<" + value + ">(program)"));
  return source;
}

// Source of several Maps with the same source in one launch. The kernel is compiled_merged_map(Programs, MapTiles), and both
// arguments are in the device's memory.
inline std::string merged_map_source(const ExpressionSource& source, DType compute) {
  const std::string kernel =
      "extern \"C\" __global__ void __launch_bounds__(block_threads) compiled_merged_map(const Program* __restrict__ programs, "
      "const MapTile* __restrict__ tiles) {\n  const MapTile tile = tiles[blockIdx.x];\n  const Program program = programs[tile.program];\n"
      "  map_tile<" +
      std::string{detail::device_type(compute)} + ">(program, tile.number);\n}\n";
  return detail::in_source("map.cuh", source.program, kernel);
}

// Source of the kernel compiled_reduce(Program, Node, ReduceExtents, partials, counters). A Node has the identity of the reduction, in
// the compute type. The epilogue's inputs are the results of the reduction, then the operands that the plan calls further. Empty in
// the same cases as map_source.
inline std::optional<ExpressionSource> reduce_source(ReduceKind kind, const Expression& expression, const ReducePlan& plan,
                                                     const Expression& epilogue, std::span<const DType> outputs) {
  const int lanes = expression.code.size() <= most_instructions_at_once ? lanes_of(plan) : 1;
  Operands operands = plan.operands;
  operands.inputs.insert(operands.inputs.end(), plan.further.begin(), plan.further.end());
  auto source = detail::program_source(expression, operands, outputs, lanes, &epilogue);
  if (!source) return std::nullopt;
  source->lanes = lanes;
  const std::string value{detail::device_type(expression.compute)};
  const std::string combine = kind == ReduceKind::sum   ? "plus"
                              : kind == ReduceKind::min ? "smaller"
                                                        : "larger";
  const std::string node = "struct Node {\n  " + value + " identity;\n  __device__ " + value + " operator()(" + value + " a, " + value +
                           " b) const { return " + combine + "(a, b); }\n};\n";
  const auto kernel = [&](const std::string& threads, const std::string& body) {
    return detail::kernel_source("reduce", threads, ", Node node, ReduceExtents extents, " + value + "* partials, unsigned* counters", body);
  };
  const std::string kernels =
      plan.way == ReduceWay::few      ? kernel("block_threads", "reduce_few<" + value + ">(program, node, extents)")
      : plan.way == ReduceWay::blocks ? kernel("block_threads / Program::lanes", "reduce_blocks(program, node, extents, partials, counters)")
                                      : kernel("ReduceExtents::columns * ReduceExtents::rows / Program::lanes",
                                               "reduce_columns(program, node, extents, partials, counters)");
  source->text = detail::in_source("reduction.cuh", source->text, node + kernels);
  return source;
}

// The same for results that are the outputs as they are.
inline std::optional<ExpressionSource> reduce_source(ReduceKind kind, const Expression& expression, const ReducePlan& plan,
                                                     std::span<const DType> outputs) {
  Expression none;
  none.compute = expression.compute;
  for (std::uint16_t o = 0; o < outputs.size(); ++o) none.outputs.push_back(none.input(o));
  return reduce_source(kind, expression, plan, none, outputs);
}

}  // namespace replicator::detail::cuda
