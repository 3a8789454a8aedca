// SPDX-License-Identifier: Apache-2.0
// FindNan: finds the first kernel or sum over replicas that makes a NaN or an infinity. It checks everything that is
// written, which is slow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <replicator/runtime/see/instruction_text.hpp>
#include <replicator/runtime/watch.hpp>

namespace replicator::detail {

class FindNan final : public Watch {
 public:
  // Keeps references to both. `replays`: what the other replicas contribute comes from a recording.
  FindNan(const Resolution& resolution, const Program& program, bool replays = false) : resolution_{resolution}, program_{program}, replays_{replays} {}

  void begin(const Program&, std::uint64_t step) override { step_ = step; }
  // Throws CheckError if a contribution to a reduction over replicas is not finite although all kernels of this step
  // made finite values.
  void before(std::uint32_t position) override {
    const auto& instruction = program_.code[position];
    if (instruction.kind == Instruction::Kind::fold) {
      for (const std::uint32_t pointer : {instruction.pointers, instruction.pointers + 1})
        require_finite(instruction.dtype, at(pointer), bytes_of(instruction), ordinal_of(instruction));
    } else if (instruction.kind == Instruction::Kind::start) {
      look_at_contributions(program_.collectives[instruction.collective]);
    }
  }
  // Throws CheckError if what the instruction wrote is not finite. The error names replica, step, node and line.
  void after(std::uint32_t position) override {
    const auto& instruction = program_.code[position];
    if (instruction.kind == Instruction::Kind::run && !instruction.relayout) return look_at_kernel(instruction);
    if (instruction.kind == Instruction::Kind::fold)
      return require_sum(instruction.dtype, at(instruction.pointers), bytes_of(instruction), instruction.replica, ordinal_of(instruction));
    if (instruction.kind == Instruction::Kind::wait) look_at_results(program_.collectives[instruction.collective]);
  }
  void finished(std::uint32_t) override {}
  void end() override {}

 private:
  // --- kernels ---
  void look_at_kernel(const Instruction& instruction) {
    for (const auto& part : parts_of(program_, instruction)) look_at_node(instruction, part);
  }
  void look_at_node(const Instruction& instruction, const LaunchPart& part) {
    const auto& graph = resolution_.classes[part.graph].graph;
    const auto& node = graph.node(part.node);
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o) {
      const auto bad = find(node.outputs[o].dtype, instruction.pointers + part.outputs + o);
      if (bad.empty()) continue;
      const Location& line = node.line_of(o);
      throw CheckError{when(instruction.replica) + node_text(graph, part.node) + (*line.file ? " at " + line.text() : "") + " made the first " + bad +
                       formula(node) + blame(instruction, part)};
    }
  }
  static std::string formula(const Node& node) {
    const auto text = formula_of(node);
    return text.empty() ? "" : " by " + text;
  }
  // A kernel may overwrite its inputs, which then cannot be checked.
  std::string blame(const Instruction& instruction, const LaunchPart& part) {
    const auto& graph = resolution_.classes[part.graph].graph;
    const auto& node = graph.node(part.node);
    for (std::uint32_t i = 0; i < node.inputs.size(); ++i) {
      const auto bad = find(graph.type(node.inputs[i]).dtype, instruction.pointers + part.inputs + i);
      if (!bad.empty() && !written(instruction, program_.pointers[instruction.pointers + part.inputs + i]))
        return "; what it was given, " + node_text(graph, node.inputs[i].node) + ", holds " + a(bad) + " already";
    }
    return labels_hint(graph, node);
  }
  // Losses multiply by a NaN where a label is no class, so the numbers alone do not show the reason.
  static std::string labels_hint(const Graph& graph, const Node& node) {
    const bool labels = std::any_of(node.inputs.begin(), node.inputs.end(), [&](const Value& input) { return !is_floating(graph.type(input).dtype); });
    return labels && formula_of(node, 4000).find("nan") != std::string::npos ? ": the formula has a NaN of its own, for a label that is no class for instance: look at the labels" : "";
  }
  bool written(const Instruction& instruction, const std::byte* input) const {
    const auto* begin = program_.pointers.data() + instruction.pointers + instruction.inputs;
    const auto* end = begin + instruction.executable->output_layouts.size();
    return std::find(begin, end, input) != end;
  }

  // --- reductions over replicas; what else collectives do makes nothing new ---
  static std::size_t bytes_of(const Instruction& fold) { return static_cast<std::size_t>(fold.elements) * size_of(fold.dtype); }
  std::uint32_t ordinal_of(const Instruction& fold) const { return node_of(resolution_, fold)->get<Placeholder>()->ordinal; }
  static bool reduces(const CollectiveUse& use) { return use.bucket != CollectiveUse::none && collectives::reduces(use.spec.kind); }

  void look_at_contributions(const CollectiveUse& use) {
    if (!reduces(use)) return;
    const auto& bucket = resolution_.buckets[use.bucket];
    for (std::size_t m = 0; m < bucket.members.size(); ++m) {
      const auto& type = resolution_.collectives[bucket.members[m]].type;
      const auto offset = static_cast<std::size_t>(bucket.offsets[m]) * size_of(type.dtype);
      for (int i = 0; i < use.collective->inputs(); ++i)
        require_finite(type.dtype, use.collective->input(i) + offset, type.bytes(), bucket.members[m]);
    }
  }
  void look_at_results(const CollectiveUse& use) {
    if (!reduces(use)) return;
    for (const auto& collected : program_.collected) {
      if (resolution_.bucket_of[collected.ordinal] != use.bucket) continue;
      const auto& any = resolution_.classes[0];  // all have the same collectives
      const auto& type = any.graph.node(any.collective[collected.ordinal]).outputs[0];
      require_sum(type.dtype, collected.data, type.bytes(),
                  program_.replica_ids[static_cast<std::size_t>(collected.replica)], collected.ordinal);
    }
  }
  void require_finite(DType dtype, const std::byte* data, std::size_t bytes, std::uint32_t ordinal) {
    if (const auto bad = find(dtype, data, bytes); !bad.empty())
      throw CheckError{when(program_.replica_ids) + "a contribution to " + resolution_.collectives[ordinal].text + " holds " + a(bad) +
                       " that no kernel of this step made: look at the input and the variables"};
  }
  void require_sum(DType dtype, const std::byte* data, std::size_t bytes, std::int32_t replica, std::uint32_t ordinal) {
    if (const auto bad = find(dtype, data, bytes); !bad.empty())
      throw CheckError{when(replica) + resolution_.collectives[ordinal].text +
                       (replays_ ? " has " + a(bad) + " in the recording; what this replica gave to it was finite: another replica gave it, or the sum made it. Run "
                                                      "the whole job with --find-nan, or record another replica"
                                 : " made the first " + bad + ": every contribution was finite")};
  }

  // --- values ---
  std::string when(std::int32_t replica) const {
    return (replica < 0 ? "all replicas" : "replica " + std::to_string(replica)) + ", step " + std::to_string(step_) + ": ";
  }
  std::string when(const std::vector<std::int32_t>& replicas) const {
    if (replicas.size() == 1) return when(replicas[0]);
    return "one of the replicas " + std::to_string(replicas.front()) + " to " + std::to_string(replicas.back()) + ", step " + std::to_string(step_) + ": ";
  }
  static std::string a(const std::string& bad) { return (bad == "infinity" ? "an " : "a ") + bad; }
  const std::byte* at(std::uint32_t pointer) const { return program_.pointers[pointer]; }
  // "NaN", "infinity" or nothing. The padding of blocked layouts is zero.
  std::string find(DType dtype, std::uint32_t pointer) {
    return find(dtype, at(pointer), program_.pointer_bytes[pointer]);
  }
  std::string find(DType dtype, const std::byte* data, std::size_t bytes) {
    if (dtype == DType::bfloat16) return find_among<bfloat16>(data, bytes);
    if (dtype == DType::float32) return find_among<float>(data, bytes);
    if (dtype == DType::float64) return find_among<double>(data, bytes);
    return {};
  }
  template <class T>
  std::string find_among(const std::byte* data, std::size_t bytes) {
    host_.resize(std::max(host_.size(), bytes));
    program_.queue.copy(host_.data(), data, bytes);
    program_.queue.synchronise();
    for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
      T value;
      std::memcpy(&value, host_.data() + i, sizeof value);
      const auto number = static_cast<double>(value);
      if (!std::isfinite(number)) return std::isnan(number) ? "NaN" : "infinity";
    }
    return {};
  }

  const Resolution& resolution_;
  const Program& program_;
  bool replays_ = false;
  std::vector<std::byte> host_;
  std::uint64_t step_ = 0;
};

}  // namespace replicator::detail
