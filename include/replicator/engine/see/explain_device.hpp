// SPDX-License-Identifier: Apache-2.0
// Describes in words the work of one device in a step.
#pragma once

#include <cstddef>
#include <string>

#include <replicator/engine/host_step.hpp>
#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

// Its collectives, the most expensive nodes, the number of its kernels, its copies, captured graphs and memory.
inline std::string explain_device(const HostStep& step, std::size_t device, const ExplainOptions& options) {
  const auto& program = step.programs[device];
  std::string text = explain(step.resolution, program, step.traces.empty() ? nullptr : step.traces[device].get(), options);
  std::size_t kernels = 0;
  for (const auto& instruction : program.code) kernels += instruction.kind == Instruction::Kind::run;
  text += std::to_string(step.resolution.classes.size()) + " different graph(s); device " + std::to_string(device) + " runs " +
          std::to_string(kernels) + " kernels for " + std::to_string(program.replica_ids.size()) + " replica(s)\n";
  return text + copies_text(program) + capture_text(step.resolution, program) + text_of(program.memory);
}

}  // namespace replicator::detail
