// SPDX-License-Identifier: Apache-2.0
// Finds the first kernel that makes a NaN or an infinity, by looking at all that every kernel writes: slow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <replicator/runtime/instruction_text.hpp>
#include <replicator/runtime/watch.hpp>

namespace replicator {

class FindNan final : public Watch {
 public:
  // Keeps references to both.
  FindNan(const Resolution& resolution, const Program& program) : resolution_{resolution}, program_{program} {}

  void begin(const Program&, std::uint64_t step) override { step_ = step; }
  void before(std::uint32_t) override {}
  // Throws CheckError that names replica, step, node and line.
  void after(std::uint32_t position) override {
    const auto& instruction = program_.code[position];
    if (instruction.kind != Instruction::Kind::run || instruction.relayout) return;
    const auto& node = *node_of(resolution_, instruction);
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o) {
      const auto bad = find(node.outputs[o].dtype, instruction.pointers + instruction.inputs + o);
      if (bad.empty()) continue;
      const std::string who = instruction.replica < 0 ? "all replicas" : "replica " + std::to_string(instruction.replica);
      throw CheckError{who + ", step " + std::to_string(step_) + ": " + located_text(resolution_.classes[instruction.graph].graph, instruction.node) +
                       " made the first " + bad + formula(node) + blame(instruction, node)};
    }
  }
  void finished(std::uint32_t) override {}
  void end() override {}

 private:
  static std::string formula(const Node& node) {
    const auto text = formula_of(node);
    return text.empty() ? "" : " by " + text;
  }
  // A kernel may write in place of its inputs, which then tell nothing more.
  std::string blame(const Instruction& instruction, const Node& node) {
    const auto& graph = resolution_.classes[instruction.graph].graph;
    for (std::uint32_t i = 0; i < instruction.inputs; ++i) {
      const auto bad = find(graph.type(node.inputs[i]).dtype, instruction.pointers + i);
      if (!bad.empty() && !written(instruction, node, i))
        return "; what it was given, " + node_text(graph, node.inputs[i].node) + ", holds a " + bad + " already";
    }
    return "";
  }
  bool written(const Instruction& instruction, const Node& node, std::uint32_t input) const {
    const auto* first = program_.pointers.data() + instruction.pointers;
    return std::find(first + instruction.inputs, first + instruction.inputs + node.outputs.size(), first[input]) !=
           first + instruction.inputs + node.outputs.size();
  }
  // "NaN", "infinity" or nothing. Padding of blocked layouts is zero.
  std::string find(DType dtype, std::uint32_t pointer) {
    if (dtype == DType::bfloat16) return find<bfloat16>(pointer);
    if (dtype == DType::float32) return find<float>(pointer);
    if (dtype == DType::float64) return find<double>(pointer);
    return {};
  }
  template <class T>
  std::string find(std::uint32_t pointer) {
    const auto bytes = program_.pointer_bytes[pointer];
    host_.resize(std::max(host_.size(), bytes));
    program_.queue.copy(host_.data(), program_.pointers[pointer], bytes);
    program_.queue.synchronise();
    for (std::size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
      T value;
      std::memcpy(&value, host_.data() + at, sizeof value);
      const auto number = static_cast<double>(value);
      if (!std::isfinite(number)) return std::isnan(number) ? "NaN" : "infinity";
    }
    return {};
  }

  const Resolution& resolution_;
  const Program& program_;
  std::vector<std::byte> host_;
  std::uint64_t step_ = 0;
};

}  // namespace replicator
