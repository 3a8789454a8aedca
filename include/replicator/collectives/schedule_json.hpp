// SPDX-License-Identifier: Apache-2.0
// Writes a schedule as JSON, for external programs that simulate or draw it.
#pragma once

#include <string_view>

#include <replicator/collectives/schedule.hpp>
#include <replicator/io/json/json_writer.hpp>

namespace replicator::detail::collectives {

namespace detail {

inline void add_operand(JsonWriter& json, std::string_view name, const Operand& operand) {
  constexpr std::string_view buffers[] = {"input", "output", "scratch"};
  json.key(name).object([&] {
    json.member("buffer", buffers[static_cast<std::size_t>(operand.buffer)]);
    json.member("rank", operand.rank);
    json.member("index", operand.index);
    json.member("chunk", operand.chunk);
    json.member("count", operand.count);
  });
}

inline void add_instruction(JsonWriter& json, const Instruction& instruction) {
  constexpr std::string_view actions[] = {"copy", "reduce", "send", "recv"};
  json.object([&] {
    json.member("do", actions[static_cast<std::size_t>(instruction.action)]);
    if (instruction.action != Action::send) add_operand(json, "dst", instruction.dst);
    if (instruction.action != Action::recv) add_operand(json, "left", instruction.left);
    if (instruction.action == Action::reduce) add_operand(json, "right", instruction.right);
    if (instruction.peer >= 0) json.member("peer", instruction.peer);
    if (instruction.root) json.member("root", true);
    if (instruction.after.empty()) return;
    json.key("after").array([&] {
      for (const auto& d : instruction.after)
        json.object([&] {
          json.member("rank", d.rank);
          json.member("channel", d.channel);
          json.member("instruction", d.instruction);
        });
    });
  });
}

}  // namespace detail

// "programs" is [rank][channel][instruction]; the members are named as in schedule.hpp.
inline void add_json(JsonWriter& json, const Schedule& schedule) {
  json.object([&] {
    json.member("name", schedule.name);
    json.member("kind", name_of(schedule.kind));
    json.member("replicas", schedule.blocks.replicas());
    if (!schedule.groups.everybody())
      json.key("groups").array([&] {
        for (int group = 0; group < schedule.groups.count(); ++group)
          json.array([&] {
            for (const int replica : schedule.groups.members(group)) json.value(replica);
          });
      });
    json.member("ranks", schedule.ranks());
    json.member("any_order", schedule.any_order);
    json.member("root", schedule.root);
    json.member("chunks", schedule.chunks);
    json.values("scratch", schedule.scratch);
    json.key("programs").array([&] {
      for (const auto& program : schedule.programs)
        json.array([&] {
          for (const auto& channel : program)
            json.array([&] {
              for (const auto& instruction : channel) detail::add_instruction(json, instruction);
            });
        });
    });
  });
}

}  // namespace replicator::detail::collectives
