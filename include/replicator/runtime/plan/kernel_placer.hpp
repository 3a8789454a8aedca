// SPDX-License-Identifier: Apache-2.0
// KernelPlacer: places the kernels of nodes in a program, one by one or several nodes as one launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <replicator/runtime/plan/plan_request.hpp>
#include <replicator/runtime/plan/program_builder.hpp>
#include <replicator/runtime/plan/update_launches.hpp>
#include <replicator/runtime/plan/value_buffers.hpp>

namespace replicator::detail {

class KernelPlacer {
 public:
  KernelPlacer(const PlanRequest& request, ProgramBuilder& builder, ValueBuffers& values) : request_{request}, builder_{builder}, values_{values} {}

  // Following instructions of the builder belong to this node of class c's graph; r = -1: once for the device.
  void set_origin(int c, const LoweredNode& node, int r) {
    builder_.set_origin(static_cast<std::uint32_t>(c), node.node, r < 0 ? -1 : request_.begin() + r);
  }
  // Does nothing if a uniform node of another class has computed the same value.
  void place(int c, const LoweredNode& node, int r) {
    if (!node.uniform || !values_.share(c, node)) append(find_operands(c, node, r), r);
    for (const auto output : node.outputs) values_.give(c, output, r);
  }
  // For uniform nodes that do not depend on each other, and that no other device needs. Makes one launch of them if the
  // device can do that.
  void place(std::span<const Update> nodes) {
    std::vector<Part> parts;
    for (const auto& [c, node] : nodes)
      if (!values_.share(c, *node)) parts.push_back(find_operands(c, *node, -1));
    if (parts.size() < 2 || !append_merged(parts))
      for (const auto& part : parts) append(part, -1);
  }

 private:
  // Buffers: the inputs that the kernel reads, and the outputs that it writes.
  struct Part {
    int c;
    const LoweredNode* node;
    std::vector<std::uint32_t> inputs, outputs;
  };

  Part find_operands(int c, const LoweredNode& node, int r) {
    set_origin(c, node, r);
    Part part{c, &node, {}, {}};
    for (const auto input : node.inputs) {
      const auto buffer = values_.operand(c, input, r);
      note_kept(c, input, node, buffer);
      part.inputs.push_back(builder_.on_device(buffer));
    }
    for (const auto output : node.outputs) part.outputs.push_back(values_.make(c, output, r));
    return part;
  }
  // A replica's value is an activation if a derivative of higher order than its maker's reads it.
  void note_kept(int c, std::uint32_t value, const LoweredNode& reader, std::uint32_t buffer) {
    const auto& known = request_.value(c, value);
    const bool later = request_.source(c).graph.node(known.node).marks.order < request_.node(c, reader).marks.order;
    if (later && !known.uniform) builder_.memory(buffer).kept = true;
  }

  void append(const Part& part, int r) {
    Instruction run;
    run.relayout = part.node->relayout;
    append(run, *part.node->executable, {&part, 1}, r);
  }
  // Returns false if the device cannot merge these kernels.
  bool append_merged(std::span<const Part> parts) {
    std::vector<const Executable*> executables;
    for (const auto& part : parts) executables.push_back(part.node->executable.get());
    auto merged = executables.front()->merge(executables);
    if (!merged) return false;
    if (merged->kernel.empty()) merged->kernel = executables.front()->kernel;
    Instruction run;
    run.first_part = static_cast<std::uint32_t>(builder_.program().parts.size());
    run.parts = static_cast<std::uint32_t>(parts.size());
    note_parts(parts);
    append(run, *builder_.program().merged.emplace_back(std::move(merged)), parts, -1);
    return true;
  }
  void note_parts(std::span<const Part> parts) {
    std::size_t input = 0, output = 0;
    for (const auto& part : parts) output += part.inputs.size();
    for (const auto& part : parts) {
      builder_.program().parts.push_back(
          {static_cast<std::uint32_t>(part.c), part.node->node, static_cast<std::uint32_t>(input), static_cast<std::uint32_t>(output)});
      input += part.inputs.size();
      output += part.outputs.size();
    }
  }
  void append(Instruction run, const Executable& executable, std::span<const Part> parts, int r) {
    set_origin(parts.front().c, *parts.front().node, r);
    std::vector<std::uint32_t> operands;
    for (const auto& part : parts) operands.insert(operands.end(), part.inputs.begin(), part.inputs.end());
    run.inputs = static_cast<std::uint32_t>(operands.size());
    for (const auto& part : parts) operands.insert(operands.end(), part.outputs.begin(), part.outputs.end());
    if (executable.reads_step) operands.push_back(builder_.on_device(builder_.step_buffer()));
    run.executable = &executable;
    run.origin = &request_.node(parts.front().c, *parts.front().node);
    builder_.append(run, operands);
    builder_.program().scratch_bytes = std::max(builder_.program().scratch_bytes, executable.scratch_bytes);
  }

  const PlanRequest& request_;
  ProgramBuilder& builder_;
  ValueBuffers& values_;
};

}  // namespace replicator::detail
