// SPDX-License-Identifier: Apache-2.0
// The part of explain() about copies between layouts in a step. Similar copies share one line.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include <replicator/core/layout_text.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/see/instruction_text.hpp>
#include <replicator/runtime/see/quantity_text.hpp>

namespace replicator::detail {

struct LayoutCopies {
  std::size_t count = 0;
  double bytes = 0, seconds = 0;  // bytes read and written; time
  std::string nodes;

  void add(const LayoutCopies& one) {
    count += one.count;
    bytes += one.bytes;
    seconds += one.seconds;
    nodes += (nodes.empty() ? "" : ", ") + one.nodes;
  }
  // "53: 102 MB, 6.7 ms"
  std::string text() const { return std::to_string(count) + ": " + large_text(bytes) + "B" + (seconds > 0 ? ", " + seconds_text(seconds) : ""); }
};

// `seconds`: the time of each instruction in a step, zeros if not timed. Empty if nothing is copied.
inline std::string layout_copies_text(const Resolution& resolution, const Program& program, std::span<const double> seconds) {
  detail::LayoutCopies all;
  std::map<std::string, detail::LayoutCopies> alike;  // by the operation that needs the copy, and the two layouts
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const auto& instruction = program.code[i];
    if (instruction.kind != Instruction::Kind::run || !instruction.relayout) continue;
    const auto node = node_text(resolution.classes[instruction.graph].graph, instruction.node);
    const auto& copy = *instruction.executable;
    const double bytes = static_cast<double>(program.pointer_bytes[instruction.pointers] + program.pointer_bytes[instruction.pointers + 1]);
    const detail::LayoutCopies one{1, bytes, seconds[i], node.substr(node.find('#'))};
    all.add(one);
    alike[node.substr(0, node.find('#')) + ", " + layout_text(copy.input_layouts[0]) + " to " + layout_text(copy.output_layouts[0])].add(one);
  }
  if (all.count == 0) return {};
  std::string text = "copies between layouts in a step, " + all.text() + "\n";
  for (const auto& [what, copies] : alike) text += "  for " + what + ", " + copies.text() + ": " + copies.nodes + "\n";
  return text;
}

}  // namespace replicator::detail
