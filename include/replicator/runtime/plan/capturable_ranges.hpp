// SPDX-License-Identifier: Apache-2.0
// Finds the stretches of a program that can be captured once and replayed in every step. Their instructions leave all
// work to the device, on fixed addresses. The instructions between stretches run on the host or wait for something.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <replicator/runtime/program.hpp>

namespace replicator::detail {

// The reason why an instruction cannot be captured; empty if it can.
inline std::string_view why_not_captured(const Instruction& instruction) {
  switch (instruction.kind) {
    case Instruction::Kind::run: return instruction.executable->needs_host ? "it looks at values on the host" : "";
    case Instruction::Kind::fold: return "";
    case Instruction::Kind::copy: return instruction.on_host ? "the host copies it" : "";
    default: return "the host does it";
  }
}

// The instructions that read the inputs form a stretch of their own: after it the next step's inputs may arrive. A
// stretch also ends before the updates, because their beginning must be announced. A single instruction is no stretch:
// capturing saves nothing.
inline std::vector<Stretch> find_stretches(const Program& program) {
  std::vector<Stretch> found;
  const auto count = static_cast<std::uint32_t>(program.code.size());
  const auto goes_on = [&](std::uint32_t begin, std::uint32_t at) {
    const bool border = at == program.inputs_end || at == program.updates_begin;
    return at < count && (at == begin || !border) && why_not_captured(program.code[at]).empty();
  };
  for (std::uint32_t begin = 0, end = 0; begin < count; begin = std::max(end, begin + 1)) {
    for (end = begin; goes_on(begin, end);) ++end;
    if (end < begin + 2) continue;
    auto& stretch = found.emplace_back();
    stretch.begin = begin;
    stretch.end = end;
  }
  return found;
}

}  // namespace replicator::detail
