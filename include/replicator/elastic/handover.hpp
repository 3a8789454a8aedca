// SPDX-License-Identifier: Apache-2.0
// What a process that comes back to its job goes on from, as bytes for a process of the same program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <replicator/engine/state/checkpoints.hpp>
#include <replicator/engine/state/snapshot.hpp>
#include <replicator/job/wire/frame.hpp>

namespace replicator::detail {

struct Handover {
  Snapshot snapshot;
  std::map<int, Resumption> steps;  // by ordinal: how far those are that are not gone
};

namespace handing {

using transport::detail::FrameReader;
using transport::detail::FrameWriter;

inline void add(FrameWriter& to, const std::set<int>& numbers) {
  to.number(numbers.size());
  for (const int number : numbers) to.number(static_cast<std::uint64_t>(number));
}
inline std::set<int> read_numbers(FrameReader& from) {
  std::set<int> result;
  for (auto count = from.number(); count > 0; --count) result.insert(static_cast<int>(from.number()));
  return result;
}

// A variable, or a value that none has been given yet.
inline std::vector<std::byte> packed(const std::string& name, const VariableDeclaration* declaration, const AnyArray& value) {
  FrameWriter to{transport::detail::FrameKind::state};
  to.text(name).number(declaration ? 1 : 0);
  const auto type = [&](const TensorType& of) {
    to.number(static_cast<std::uint64_t>(of.dtype)).number(of.shape.rank());
    for (const auto extent : of.shape) to.number(static_cast<std::uint64_t>(extent));
  };
  if (declaration) {
    to.number(static_cast<std::uint64_t>(declaration->kind)).number(declaration->trainable ? 1 : 0);
    to.number(static_cast<std::uint64_t>(declaration->device + 1));
    type(declaration->type);
  }
  type(value.type());
  to.blob(value.bytes());
  const auto fields = to.fields();
  return {fields.begin(), fields.end()};
}
inline TensorType read_type(FrameReader& from) {
  TensorType result;
  result.dtype = static_cast<DType>(from.number());
  result.shape = {};
  for (auto rank = from.number(); rank > 0; --rank) result.shape.push_back(static_cast<std::int64_t>(from.number()));
  return result;
}
inline AnyArray read_value(FrameReader& from) {
  AnyArray result{read_type(from)};
  const auto bytes = from.blob();
  if (bytes.size() != result.size_bytes()) throw CommunicationError{"a value that was handed over is cut short", -1};
  if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}
inline void unpack_variable(FrameReader from, Snapshot& snapshot) {
  const auto name = from.text();
  if (from.number() == 0) {
    snapshot.checkpoints.state.values.emplace(name, read_value(from));
    return;
  }
  VariableDeclaration declaration;
  declaration.name = name;
  declaration.kind = static_cast<VariableKind>(from.number());
  declaration.trainable = from.number() != 0;
  declaration.device = static_cast<std::int32_t>(from.number()) - 1;
  declaration.type = read_type(from);
  snapshot.variables.emplace(name, Snapshot::Variable{std::move(declaration), read_value(from)});
}

}  // namespace handing

// How far all is, then a part for each variable.
inline std::vector<std::vector<std::byte>> pack_handover(const Snapshot& snapshot, const std::map<int, Resumption>& steps) {
  const auto& [state, path, read, declared, due, lives] = snapshot.checkpoints;
  detail::handing::FrameWriter to{transport::detail::FrameKind::state};
  to.number(snapshot.call).number(steps.size());
  for (const auto& [ordinal, step] : steps)
    to.number(static_cast<std::uint64_t>(ordinal)).number(step.done).number(step.finished ? 1 : 0);
  to.text(path);
  std::set<int> made;
  for (const auto& [ordinal, life] : lives) made.insert(ordinal);
  for (const std::set<int>* numbers : {&read, &declared, &due, &std::as_const(made)}) detail::handing::add(to, *numbers);
  to.number(static_cast<std::uint64_t>(state.next_ordinal)).number(state.experiment.size());
  for (const auto& [key, value] : state.experiment) to.text(key).text(value);
  to.number(state.steps.size());
  for (const auto& [ordinal, step] : state.steps)
    to.number(static_cast<std::uint64_t>(ordinal)).number(step.done).number(step.finished ? 1 : 0).number(step.collectives);
  to.number(state.variables.size());
  for (const auto& [name, variable] : state.variables) {
    to.text(name).number(static_cast<std::uint64_t>(variable.kind));
    detail::handing::add(to, variable.steps);
  }
  const auto fields = to.fields();
  std::vector<std::vector<std::byte>> parts{{fields.begin(), fields.end()}};
  for (const auto& [name, variable] : snapshot.variables) parts.push_back(detail::handing::packed(name, &variable.declaration, variable.value));
  for (const auto& [name, value] : state.values) parts.push_back(detail::handing::packed(name, nullptr, value));
  return parts;
}

// Throws CommunicationError for what pack_handover() has not written.
inline Handover unpack_handover(const std::vector<std::vector<std::byte>>& parts) {
  if (parts.empty()) throw CommunicationError{"nothing was handed over", -1};
  Handover result;
  detail::handing::FrameReader from{parts[0]};
  auto& memory = result.snapshot.checkpoints;
  result.snapshot.call = from.number();
  for (auto count = from.number(); count > 0; --count) {
    const auto ordinal = static_cast<int>(from.number());
    const auto done = from.number();
    result.steps[ordinal] = {done, from.number() != 0, {}};
  }
  memory.path = from.text();
  std::set<int> made;
  for (auto* numbers : {&memory.read, &memory.declared, &memory.due, &made}) *numbers = detail::handing::read_numbers(from);
  for (const int ordinal : made) memory.lives[ordinal];
  auto& state = memory.state;
  state.next_ordinal = static_cast<int>(from.number());
  for (auto count = from.number(); count > 0; --count) {
    auto key = from.text();
    state.experiment.emplace(std::move(key), from.text());
  }
  for (auto count = from.number(); count > 0; --count) {
    auto& step = state.steps[static_cast<int>(from.number())];
    step.done = from.number();
    step.finished = from.number() != 0;
    step.collectives = from.number();
  }
  for (auto count = from.number(); count > 0; --count) {
    auto& variable = state.variables[from.text()];
    variable.kind = static_cast<VariableKind>(from.number());
    variable.steps = detail::handing::read_numbers(from);
  }
  for (std::size_t part = 1; part < parts.size(); ++part)
    detail::handing::unpack_variable(detail::handing::FrameReader{parts[part]}, result.snapshot);
  return result;
}

}  // namespace replicator::detail
