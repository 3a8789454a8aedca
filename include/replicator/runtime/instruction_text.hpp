// SPDX-License-Identifier: Apache-2.0
// What an instruction of a program is called where people read it: traces, plans, explanations, errors.
#pragma once

#include <string>
#include <string_view>

#include <replicator/collectives/resolve.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/runtime/program.hpp>

namespace replicator {

constexpr std::string_view name_of(Instruction::Kind kind) {
  constexpr std::string_view names[] = {"run", "fold", "copy", "start", "wait", "give", "take"};
  return names[static_cast<std::size_t>(kind)];
}

// Null where the instruction is of no node.
inline const Node* node_of(const Resolution& resolution, const Instruction& instruction) {
  if (instruction.graph == Instruction::none) return nullptr;
  return &resolution.classes[instruction.graph].graph.node(instruction.node);
}

// "convolution#17", with the label where there is one: "read#3 conv1.weight". Numbered in the resolved graph.
inline std::string node_text(const Graph& graph, std::uint32_t index) {
  const auto& node = graph.node(index);
  return std::string{node.kind()} + "#" + std::to_string(index) + (node.label.empty() ? "" : " " + node.label);
}

// What an elementwise node computes, at most `length` characters of it; empty for others.
inline std::string formula_of(const Node& node, std::size_t length = 80) {
  std::string text;
  if (const auto* map = operation_of<Map>(node)) text = map->expression->text();
  if (const auto* reduce = operation_of<Reduce>(node)) text = std::string{name_of(reduce->kind)} + " of " + reduce->expression->text();
  if (text.size() > length) text = text.substr(0, length - 3) + "...";
  return text;
}

// "convolution#17", "layout for convolution#17", "fold for all_reduce#90", "start all_reduce "loss" at train.cpp:31"
inline std::string text_of(const Resolution& resolution, const Program& program, const Instruction& instruction) {
  const bool communicates = instruction.kind == Instruction::Kind::start || instruction.kind == Instruction::Kind::wait;
  if (communicates) return std::string{name_of(instruction.kind)} + " " + program.collectives[instruction.collective].text;
  if (instruction.graph == Instruction::none) return std::string{name_of(instruction.kind)};
  const auto node = node_text(resolution.classes[instruction.graph].graph, instruction.node);
  if (instruction.kind == Instruction::Kind::run) return instruction.relayout ? "layout for " + node : node;
  return std::string{name_of(instruction.kind)} + " for " + node;
}

}  // namespace replicator
