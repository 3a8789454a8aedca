// SPDX-License-Identifier: Apache-2.0
// What a step copies between the host and a device with memory of its own: for explain().
#pragma once

#include <cstddef>
#include <string>

#include <replicator/runtime/memory_plan.hpp>
#include <replicator/runtime/program.hpp>

namespace replicator {

// Empty where the device computes on the host's memory.
inline std::string copies_text(const Program& program) {
  if (!program.queue.handle()) return {};
  std::size_t from_host = program.stage_bytes, to_host = 0;
  for (const auto& instruction : program.code) {
    if (instruction.kind != Instruction::Kind::copy) continue;
    if (!on_device(program, program.pointers[instruction.pointers])) from_host += instruction.bytes;
    if (!on_device(program, program.pointers[instruction.pointers + 1])) to_host += instruction.bytes;
  }
  for (const auto& use : program.collectives) {
    const auto* const collective = use.collective->on_device();
    if (!collective) continue;
    from_host += collective->host_copies().from_host;
    to_host += collective->host_copies().to_host;
  }
  return "each step copies " + text_of_bytes(from_host) + " from the host's memory and " + text_of_bytes(to_host) + " to it\n";
}

}  // namespace replicator
