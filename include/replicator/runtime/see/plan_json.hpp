// SPDX-License-Identifier: Apache-2.0
// Writes the programs of all devices as JSON, for other programs such as a simulator. docs/plan.md describes the
// format.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <replicator/collectives/schedule_json.hpp>
#include <replicator/runtime/see/instruction_text.hpp>
#include <replicator/runtime/see/plan_places.hpp>
#include <replicator/runtime/see/reports.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

class PlanJson {
 public:
  explicit PlanJson(const PlanView& view) : view_{view} {}

  std::string run() && {
    json_.object([&] {
      json_.member("process", view_.process);
      json_.key("graphs").array([&] {
        for (std::uint32_t c = 0; c < view_.resolution.classes.size(); ++c) add_graph(c);
      });
      json_.key("collectives").array([&] {
        for (const auto& collective : view_.resolution.collectives) add_collective(collective);
      });
      json_.key("devices").array([&] {
        for (std::size_t d = 0; d < view_.programs.size(); ++d) add_device(view_.programs[d], view_.devices[d]);
      });
      json_.key("schedules").array([&] {
        for (const auto& schedule : schedules_) {
          json_.new_line();
          json_.raw(schedule);
        }
      });
    });
    return json_.text();
  }

 private:
  void add_graph(std::uint32_t c) {
    const auto& one = view_.resolution.classes[c];
    json_.object([&] {
      json_.key("replicas").array([&] {
        for (std::size_t r = 0; r < view_.resolution.class_of.size(); ++r)
          if (view_.resolution.class_of[r] == c) json_.value(view_.first_replica + static_cast<int>(r));
      });
      json_.key("nodes").array([&] {
        for (std::uint32_t i = 0; i < one.graph.nodes().size(); ++i) add_node(one, i);
      });
      json_.key("results").array([&] {
        for (const auto result : one.graph.results()) add_value(result);
      });
    });
  }
  void add_value(Value value) {
    json_.array([&] {
      json_.value(value.node);
      json_.value(value.output);
    });
  }
  void add_node(const GraphClass& one, std::uint32_t index) {
    const auto& node = one.graph.node(index);
    json_.new_line();
    json_.object([&] {
      json_.member("node", index);
      json_.member("kind", node.kind());
      if (!node.label.empty()) json_.member("label", node.label);
      if (const auto formula = formula_of(node, 400); !formula.empty()) json_.member("formula", formula);
      if (node.where.line) json_.member("where", node.where.text());
      if (one.graph.logical_devices() > 1) json_.member("device", node.device);
      json_.member("uniform", static_cast<bool>(one.uniformity.uniform[index]));
      json_.key("inputs").array([&] {
        for (const auto input : node.inputs) add_value(input);
      });
      json_.key("outputs").array([&] {
        for (const auto& output : node.outputs) add_type(output);
      });
    });
  }
  void add_type(const TensorType& type) {
    json_.object([&] {
      json_.member("dtype", name_of(type.dtype));
      json_.values("shape", type.shape);
    });
  }
  void add_collective(const ResolvedCollective& collective) {
    json_.new_line();
    json_.object([&] {
      json_.member("text", collective.text);
      json_.member("kind", name_of(collective.what.kind));
      json_.member("reduction", name_of(collective.what.reduction));
      json_.key("contribution");
      add_type(collective.type);
    });
  }

  void add_device(const Program& program, const std::string& name) {
    places_.emplace(program, view_.resolution, view_.variables);
    json_.object([&] {
      json_.member("device", name);
      json_.member("rank", program.communicator->rank());
      json_.values("replicas", program.replica_ids);
      json_.member("arena_bytes", program.arena_bytes);
      json_.member("scratch_bytes", program.scratch_bytes);
      json_.key("needs");
      add_memory(program.memory);
      json_.key("collectives").array([&] {
        for (const auto& use : program.collectives) add_use(use);
      });
      json_.key("instructions").array([&] {
        for (const auto& instruction : program.code) add_instruction(program, instruction);
      });
    });
  }
  void add_memory(const MemoryNeed& plan) {
    json_.object([&] {
      json_.member("total", plan.total());
      for (std::size_t use = 0; use < memory_uses; ++use) json_.member(name_of(static_cast<MemoryUse>(use)), plan.bytes[use]);
      json_.member("gaps", plan.gaps);
      json_.member("peak", plan.peak);
      json_.key("largest").array([&] {
        for (const auto& owner : plan.largest) {
          json_.new_line();
          json_.object([&] {
            json_.member("bytes", owner.bytes);
            json_.member("use", name_of(owner.use));
            json_.member("text", owner.text);
          });
        }
      });
    });
  }
  void add_use(const CollectiveUse& use) {
    json_.new_line();
    json_.object([&] {
      json_.member("text", use.text);
      json_.member("kind", name_of(use.spec.kind));
      json_.member("dtype", name_of(use.spec.dtype));
      json_.member("elements", use.spec.elements);
      json_.member("bytes", use.bytes);
      if (use.bucket != CollectiveUse::none) {
        const auto& bucket = view_.resolution.buckets[use.bucket];
        json_.member("bucket", use.bucket);
        json_.values("members", bucket.members);
        json_.values("offsets", bucket.offsets);
      }
      json_.member("ranks", use.schedule.ranks());
      json_.member("schedule", schedule_index(use.schedule));
      json_.member("reason", use.reason);
      json_.member("asked", use.asked);
    });
  }
  std::size_t schedule_index(const collectives::Schedule& schedule) {
    JsonWriter writer;
    collectives::add_json(writer, schedule);
    const auto found = std::find(schedules_.begin(), schedules_.end(), writer.text());
    if (found != schedules_.end()) return static_cast<std::size_t>(found - schedules_.begin());
    schedules_.push_back(writer.text());
    return schedules_.size() - 1;
  }
  void add_instruction(const Program& program, const Instruction& instruction) {
    using Kind = Instruction::Kind;
    json_.new_line();
    json_.object([&] {
      json_.member("do", name_of(instruction.kind));
      if (instruction.graph != Instruction::none) {
        json_.member("graph", instruction.graph);
        json_.member("node", instruction.node);
        const auto& node = *node_of(view_.resolution, instruction);
        if (node.where.line) json_.member("where", node.where.text());
        if (instruction.parts) add_parts(program, instruction);
      }
      if (instruction.replica >= 0) json_.member("replica", instruction.replica);
      if (instruction.relayout) json_.member("relayout", true);
      if (instruction.kind == Kind::fold || instruction.kind == Kind::start || instruction.kind == Kind::wait)
        json_.member("collective", instruction.collective);
      if (instruction.kind == Kind::give || instruction.kind == Kind::take) json_.member("place", instruction.place);
      if (instruction.kind == Kind::fold) json_.member("elements", instruction.elements);
      if (instruction.kind == Kind::copy) json_.member("bytes", instruction.bytes);
      const auto inputs = instruction.kind == Kind::run    ? instruction.inputs
                          : instruction.kind == Kind::copy ? 1u
                                                           : 0u;
      const auto all = instruction.kind == Kind::run                                      ? inputs + static_cast<std::uint32_t>(instruction.executable->output_layouts.size())
                       : instruction.kind == Kind::copy || instruction.kind == Kind::fold ? 2u
                                                                                          : 0u;
      if (instruction.kind == Kind::run) json_.member("kernel", instruction.executable->kernel);
      if (instruction.kind == Kind::run && instruction.executable->scratch_bytes) json_.member("scratch", instruction.executable->scratch_bytes);
      if (inputs) add_operands(program, "inputs", instruction.pointers, instruction.pointers + inputs);
      if (all > inputs) add_operands(program, "outputs", instruction.pointers + inputs, instruction.pointers + all);
    });
  }
  void add_parts(const Program& program, const Instruction& instruction) {
    json_.key("parts").array([&] {
      for (const auto& part : parts_of(program, instruction))
        json_.array([&] {
          json_.value(part.graph);
          json_.value(part.node);
        });
    });
  }
  void add_operands(const Program& program, const char* name, std::uint32_t begin, std::uint32_t end) {
    json_.key(name).array([&] {
      for (auto p = begin; p < end; ++p) json_.object([&] { add_operand(program, p); });
    });
  }
  void add_operand(const Program& program, std::uint32_t pointer) {
    const auto patch = std::find_if(program.patches.begin(), program.patches.end(), [&](const auto& each) { return each.pointer == pointer; });
    if (patch != program.patches.end()) {
      json_.member("memory", "input");
      json_.member("replica", program.replica_ids[patch->replica]);
      json_.member("element", patch->element);
    } else {
      places_->describe(program.pointers[pointer], json_);
    }
    json_.member("bytes", program.pointer_bytes[pointer]);
  }

  const PlanView& view_;
  JsonWriter json_;
  std::optional<PlanPlaces> places_;  // of the device that is being written
  std::vector<std::string> schedules_;
};

template <class>
std::string plan_part(const PlanView& view) { return PlanJson{view}.run(); }

template <class>
std::string plan_json(const std::vector<std::string>& parts, std::size_t number) {
  JsonWriter json;
  json.object([&] {
    json.member("format", "replicator plan 1");
    json.member("number", number);
    json.key("processes").array([&] {
      for (const auto& part : parts) json.raw(part);
    });
  });
  return json.text() + "\n";
}

}  // namespace replicator::detail
