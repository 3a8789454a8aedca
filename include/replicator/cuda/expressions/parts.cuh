// SPDX-License-Identifier: Apache-2.0
// Splits an expression that has more outputs or inputs than a launch has room for. Each output becomes an executable, and they
// run one after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/cuda/expressions/scalar_program.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail::cuda {

// The part of an expression that one output needs: an expression of its own, over some of the inputs.
struct ExpressionPart {
  Expression expression;
  std::vector<std::size_t> inputs;
};

inline ExpressionPart part_of(const Expression& whole, std::size_t output) {
  std::vector<bool> used(whole.code.size());
  used[whole.outputs[output]] = true;
  for (std::size_t i = whole.code.size(); i-- > 0;) {
    const std::uint16_t operands[] = {whole.code[i].a, whole.code[i].b, whole.code[i].c};
    for (int o = 0; used[i] && o < operands_of(whole.code[i].op); ++o) used[operands[o]] = true;
  }
  ExpressionPart part;
  part.expression.compute = whole.compute;
  std::vector<std::uint16_t> renamed(whole.code.size());
  for (std::size_t i = 0; i < whole.code.size(); ++i) {
    if (!used[i]) continue;
    auto instruction = whole.code[i];
    std::uint16_t* const operands[] = {&instruction.a, &instruction.b, &instruction.c};
    for (int o = 0; o < operands_of(instruction.op); ++o) *operands[o] = renamed[*operands[o]];
    if (instruction.op == ScalarOp::input) {
      part.inputs.push_back(instruction.a);
      instruction.a = static_cast<std::uint16_t>(part.inputs.size() - 1);
    }
    renamed[i] = part.expression.append(instruction);
  }
  part.expression.inputs = static_cast<std::uint16_t>(part.inputs.size());
  part.expression.outputs = {renamed[whole.outputs[output]]};
  return part;
}

class PartsExecutable final : public Executable {
 public:
  explicit PartsExecutable(std::vector<Layout> layouts) { input_layouts = std::move(layouts); }

  // Adds the part that computes the next output from these inputs.
  void add(std::unique_ptr<Executable> executable, std::vector<std::size_t> inputs) {
    scratch_bytes = std::max(scratch_bytes, executable->scratch_bytes);
    table_bytes += executable->table_bytes;
    output_layouts.push_back(executable->output_layouts[0]);
    parts_.push_back({std::move(executable), std::move(inputs)});
    in_place.push_back(-1);  // a later part may still read the input
  }
  // The tables of the parts, one after the other.
  std::vector<std::byte> table(const std::byte* const* inputs, std::byte* const* outputs) const override {
    std::vector<std::byte> all;
    for (std::size_t o = 0; o < parts_.size(); ++o) {
      const auto table = parts_[o].executable->table(inputs_of(parts_[o], inputs).data(), outputs + o);
      all.insert(all.end(), table.begin(), table.end());
    }
    return all;
  }
  void run(const Launch& launch) const override {
    const auto* table = launch.table;
    for (std::size_t o = 0; o < parts_.size(); ++o) {
      const auto& executable = *parts_[o].executable;
      executable.run({inputs_of(parts_[o], launch.inputs).data(), launch.outputs + o, launch.scratch, launch.context, launch.stream, launch.step, table});
      table += executable.table_bytes;
    }
  }

 private:
  struct Part {
    std::unique_ptr<Executable> executable;
    std::vector<std::size_t> inputs;
  };
  using Inputs = std::array<const std::byte*, ScalarProgram::most_inputs>;
  static Inputs inputs_of(const Part& part, const std::byte* const* all) {
    Inputs inputs{};
    for (std::size_t i = 0; i < part.inputs.size(); ++i) inputs[i] = all[part.inputs[i]];
    return inputs;
  }

  std::vector<Part> parts_;
};

// Splits an operation that carries an expression. Its inputs lie in `layouts`. operation(expression, number of the output) makes
// an operation with a single output. Null where there is only one output, or where a part is still too large.
template <class F>
std::unique_ptr<Executable> make_parts(const KernelRequest& request, const std::vector<Layout>& layouts, const Expression& whole, F&& operation,
                                       std::unique_ptr<Executable> (*make)(const KernelRequest&)) {
  if (request.outputs.size() < 2) return nullptr;
  auto result = std::make_unique<PartsExecutable>(layouts);
  for (std::size_t o = 0; o < request.outputs.size(); ++o) {
    auto part = part_of(whole, o);
    std::vector<TensorType> inputs;
    std::vector<Layout> offered;
    for (const auto input : part.inputs) {
      inputs.push_back(request.inputs[input]);
      offered.push_back(layouts[input]);
    }
    const AnyOperation single{operation(std::move(part.expression), o)};
    auto executable = make({single, inputs, request.outputs.subspan(o, 1), offered, request.threads});
    if (!executable) return nullptr;
    result->add(std::move(executable), std::move(part.inputs));
  }
  return result;
}

}  // namespace replicator::detail::cuda
