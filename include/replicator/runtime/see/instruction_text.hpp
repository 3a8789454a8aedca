// SPDX-License-Identifier: Apache-2.0
// Names of instructions and nodes for traces, plans, explanations and errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/node_text.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/program.hpp>

namespace replicator::detail {

constexpr std::string_view name_of(Instruction::Kind kind) {
  constexpr std::string_view names[] = {"run", "fold", "copy", "start", "wait", "give", "take", "look"};
  return names[static_cast<std::size_t>(kind)];
}

// Null if the instruction belongs to no node.
inline const Node* node_of(const Resolution& resolution, const Instruction& instruction) {
  if (instruction.graph == Instruction::none) return nullptr;
  return &resolution.classes[instruction.graph].graph.node(instruction.node);
}

// The nodes that a run instruction computes: one, or all of a merged launch.
inline std::vector<LaunchPart> parts_of(const Program& program, const Instruction& run) {
  if (run.parts == 0) return {{run.graph, run.node, 0, run.inputs}};
  const auto first = program.parts.begin() + run.first_part;
  return {first, first + run.parts};
}

// "convolution#17", "map#290 and 160 more", "layout for convolution#17", "fold for all_reduce#90", "start all_reduce "loss" at train.cpp:31"
inline std::string text_of(const Resolution& resolution, const Program& program, const Instruction& instruction) {
  const bool communicates = instruction.kind == Instruction::Kind::start || instruction.kind == Instruction::Kind::wait;
  if (communicates) return std::string{name_of(instruction.kind)} + " " + program.collectives[instruction.collective].text;
  const bool crosses = instruction.kind == Instruction::Kind::give || instruction.kind == Instruction::Kind::take;
  if (crosses) return std::string{name_of(instruction.kind)} + " " + program.handoffs->text(instruction.place);
  if (instruction.graph == Instruction::none) return std::string{name_of(instruction.kind)};
  const auto node = node_text(resolution.classes[instruction.graph].graph, instruction.node);
  if (instruction.kind == Instruction::Kind::run) return (instruction.relayout ? "layout for " + node : node) + (instruction.parts ? " and " + std::to_string(instruction.parts - 1) + " more" : "");
  return std::string{name_of(instruction.kind)} + " for " + node;
}

}  // namespace replicator::detail
