// SPDX-License-Identifier: Apache-2.0
// The part of explain() about a device with its own memory: copies from and to the host in each step, and host memory.
#pragma once

#include <cstddef>
#include <string>

#include <replicator/runtime/memory_need.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

template <class>
std::string copies_text(const Program& program) {
  if (!program.queue.handle()) return {};
  collectives::HostPart sum{program.stage_bytes, 0, 0};
  for (const auto& instruction : program.code) {
    if (instruction.kind != Instruction::Kind::copy || instruction.on_host) continue;
    if (!on_device(program, program.pointers[instruction.pointers])) sum.from_host += instruction.bytes;
    if (!on_device(program, program.pointers[instruction.pointers + 1])) sum.to_host += instruction.bytes;
  }
  for (const auto& use : program.collectives) {
    const auto* const of_device = use.collective->on_device();
    const auto part = of_device ? of_device->host_part() : collectives::HostPart{0, 0, use.collective->bytes()};
    sum.from_host += part.from_host;
    sum.to_host += part.to_host;
    sum.held += part.held;
  }
  std::size_t results = 0;
  for (const auto& result : program.results)
    for (const auto& array : result) results += array.size_bytes();
  const auto variables = program.variables.host_bytes(), input = 2 * program.stage_bytes;
  return "each step copies " + text_of_bytes(sum.from_host) + " from the host's memory and " + text_of_bytes(sum.to_host) + " to it; of the host's memory " +
         text_of_bytes(variables + input + results + sum.held) + " are for this device, pinned where that can be done: variables " + text_of_bytes(variables) +
         ", input and results " + text_of_bytes(input + results) + ", collectives " + text_of_bytes(sum.held) + "\n";
}

}  // namespace replicator::detail
