// SPDX-License-Identifier: Apache-2.0
// The part of explain() about captured work: what is captured and replayed, and why the rest is not.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include <replicator/core/location.hpp>
#include <replicator/runtime/plan/capturable_ranges.hpp>
#include <replicator/runtime/see/instruction_text.hpp>
#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

inline std::string stretch_text(const Stretch& stretch) {
  const std::string which = "  instructions " + std::to_string(stretch.begin) + " to " + std::to_string(stretch.end - 1);
  if (!stretch.refused.empty()) return which + " could not be captured: " + stretch.refused + "\n";
  return stretch.captured.empty() ? which + " are captured in their second run, unless --no-capture, --trace, --timing, --skew or --find-nan ask otherwise\n" : "";
}

// "gather#12 at net.cpp:31"
inline std::string place_text(const Resolution& resolution, const Program& program, const Instruction& instruction) {
  const auto* node = node_of(resolution, instruction);
  return text_of(resolution, program, instruction) + (node ? " at " + node->where.text() : "");
}

template <class>
std::string capture_text(const Resolution& resolution, const Program& program) {
  if (!program.queue.can_capture()) return {};
  std::size_t captured = 0, replays = 0;
  std::string text;
  for (const auto& stretch : program.stretches) {
    captured += stretch.captured.empty() ? 0 : stretch.end - stretch.begin;
    replays += !stretch.captured.empty();
    text += stretch_text(stretch);
  }
  std::map<std::string, int> others;
  for (const auto& instruction : program.code) {
    const bool of_device = instruction.kind == Instruction::Kind::run || instruction.kind == Instruction::Kind::copy;
    if (const auto reason = why_not_captured(instruction); of_device && !reason.empty())
      ++others[place_text(resolution, program, instruction) + " is not captured: " + std::string{reason}];
  }
  for (const auto& [what, times] : others) text += "  " + what + (times > 1 ? " (" + std::to_string(times) + " times)" : "") + "\n";
  return std::to_string(captured) + " of " + std::to_string(program.code.size()) + " instructions are captured, replayed as " + std::to_string(replays) +
         " launch(es) a step\n" + text;
}

}  // namespace replicator::detail
