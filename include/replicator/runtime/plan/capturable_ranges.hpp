// SPDX-License-Identifier: Apache-2.0
// Which instructions of a program can be captured once and replayed in every step: those that leave all to the device, on addresses that
// stay. All others are between them: what the host does, or waits for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <replicator/runtime/program.hpp>

namespace replicator::detail {

// Why an instruction cannot be captured; empty where it can.
inline std::string_view why_not_captured(const Instruction& instruction) {
  switch (instruction.kind) {
    case Instruction::Kind::run: return instruction.executable->needs_host ? "it looks at values on the host" : "";
    case Instruction::Kind::fold: return "";
    case Instruction::Kind::copy: return instruction.on_host ? "the host copies it" : "";
    default: return "the host does it";
  }
}

// A stretch of its own brings the inputs: behind it those of the next step may come. In front of updates one ends too: it is told that they
// begin. A single instruction is no stretch, for there is nothing to save.
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
