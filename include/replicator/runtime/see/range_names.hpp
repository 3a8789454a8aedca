// SPDX-License-Identifier: Apache-2.0
// Names a program's instructions and stretches for an attached profiling tool: "convolution#17 at resnet.cpp:31
// (replica 3)".
#pragma once

#include <string>

#include <replicator/devices/tool_ranges.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/see/instruction_text.hpp>

namespace replicator::detail {

// Does nothing if no tool is attached for this kind of device.
inline void name_ranges(Program& program, const Resolution& resolution, DeviceKind kind) {
  program.ranges.tool = tool_ranges(kind);
  if (!program.ranges.tool) return;
  for (const auto& instruction : program.code) {
    auto& name = program.ranges.instructions.emplace_back(text_of(resolution, program, instruction));
    if (const auto* node = node_of(resolution, instruction)) name += " at " + node->where.text();
    if (instruction.replica >= 0) name += " (replica " + std::to_string(instruction.replica) + ")";
  }
  for (const auto& stretch : program.stretches)
    program.ranges.stretches.push_back("captured: " + program.ranges.instructions[stretch.begin] + " to " + program.ranges.instructions[stretch.end - 1]);
}

}  // namespace replicator::detail
