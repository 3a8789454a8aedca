// SPDX-License-Identifier: Apache-2.0
// MemoryCount: counts the memory of a program under construction, by use, with the names of the owners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <replicator/graph/node_text.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/handoffs.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/runtime/memory_need.hpp>
#include <replicator/runtime/plan/program_builder.hpp>

namespace replicator::detail {

class MemoryCount {
 public:
  MemoryCount(const Resolution& resolution, const std::vector<LoweredGraph>& lowered) : resolution_{resolution}, lowered_{lowered} {}

  // A replica: its class, its number among all replicas, and the device to count. Mirrored variables count once.
  void add_replica(std::uint32_t graph, int replica, int device) {
    const auto& source = resolution_.classes[graph].graph;
    for (const auto& variable : source.variables()) {
      if (variable.device != device) continue;
      const bool mirrored = variable.kind == VariableKind::mirrored;
      if (mirrored && !mirrored_.insert(variable.name).second) continue;
      auto owner = owner_of(variable);
      owner.text.insert(0, prefix(mirrored ? -1 : replica));
      plan_.add(std::move(owner));
    }
    for (const auto& node : source.nodes())
      if (const auto* input = node.get<Input>(); input && device == 0 && input->source == Input::Source::element)
        plan_.add({2 * node.outputs[0].bytes(), MemoryUse::input, prefix(replica) + "component " + std::to_string(input->index) + " of the input, " + node.outputs[0].text() + ", of this step and the next"});
  }

  // Everything else, of an arranged builder. A GPU's handoffs are in the host's memory, so they do not count.
  void count(const ProgramBuilder& builder, int device) {
    const auto& program = builder.program();
    if (const auto* handoffs = program.handoffs; handoffs && builder.support().runs_on_host())
      for (std::uint32_t place = 0; place < handoffs->size(); ++place)
        if (handoffs->device_of(place) == device) plan_.add({handoffs->bytes(place), MemoryUse::handoffs, handoffs->text(place) + ", for the other devices of its replica"});
    for (const auto& use : program.collectives) plan_.add({use.collective->bytes(), MemoryUse::collectives, use.text});
    for (const auto& result : program.results)
      for (const auto& array : result) plan_.add({array.size_bytes(), MemoryUse::input, "a result, " + array.type().text()});
    const auto [peak, held] = builder.peak();
    plan_.peak = peak;
    std::size_t values = 0;
    for (const auto buffer : held) {
      const auto& memory = builder.memory(buffer);
      values += memory.bytes;
      plan_.add({memory.bytes, memory.kept ? MemoryUse::activations : MemoryUse::values, describe(memory)});
    }
    plan_.gaps = program.arena_bytes - values;
    if (program.stage_bytes) plan_.add({program.stage_bytes, MemoryUse::input, "the places in which the inputs of the next step arrive"});
    plan_.add({program.table_bytes, MemoryUse::scratch, "the tables of merged launches and the counters of reductions"});
    plan_.add({program.constant_bytes, MemoryUse::values, "constants"});
    plan_.add({program.refusals.bytes(), MemoryUse::scratch, "words for values that kernels refuse"});
    plan_.add({program.scratch_bytes, MemoryUse::scratch, "scratch of the kernel that needs most"});
  }
  // The count so far.
  const MemoryNeed& plan() const { return plan_; }

 private:
  static std::string prefix(int replica) { return replica < 0 ? std::string{} : "replica" + std::to_string(replica) + "/"; }

  // "replica2/convolution#12 at train.cpp:31, float32[16, 64, 56, 56]"
  std::string describe(const ProgramBuilder::Memory& memory) const {
    if (memory.graph == ProgramBuilder::none) return "set aside for a collective or an update";
    const auto& value = lowered_[memory.graph].values[memory.value];
    const Value of = value.of();
    const auto& graph = resolution_.classes[memory.graph].graph;
    return prefix(memory.owner) + located_text(graph, of.node) + ", " + graph.type(of).text() + (value.copied ? ", copied to another layout" : "");
  }

  const Resolution& resolution_;
  const std::vector<LoweredGraph>& lowered_;
  std::set<std::string> mirrored_;
  MemoryNeed plan_;
};

}  // namespace replicator::detail
