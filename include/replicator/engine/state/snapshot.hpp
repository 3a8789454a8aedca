// SPDX-License-Identifier: Apache-2.0
// Snapshot: the state of an experiment between two steps, in memory. A job goes back to it after it has lost a process.
// A process that rejoins its job receives it as the bytes of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/engine/all_variables.hpp>
#include <replicator/engine/placement.hpp>
#include <replicator/engine/state/checkpoint.hpp>
#include <replicator/engine/state/checkpoints.hpp>
#include <replicator/job/job.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

struct Snapshot {
  struct Variable {
    VariableDeclaration declaration;
    AnyArray value;  // a replica-local one has the values of all replicas, stacked
  };

  std::uint64_t call = 0;  // the number of the call before which it was taken
  std::map<std::string, Variable> variables;
  Checkpoints::Memory checkpoints;

  // Collective: every process calls it. If it throws CommunicationError, nothing has changed. Reuses the memory of
  // earlier values.
  void take(const VariableStore& store, transport::Job& job, const Placement& placement) {
    bool replica_local = false;
    for (const auto& name : store.names()) replica_local |= store.declaration(name).kind == VariableKind::replica_local;
    if (replica_local) {
      const AllVariables all{store, job, placement};
      all.for_each([&](const std::string& name, const VariableDeclaration& declaration, const auto& pieces) {
        keep(name, declaration, pieces, placement.blocks().replicas());
      });
    } else {
      for (const auto& name : store.names())
        keep(name, store.declaration(name), std::vector{store.value(name, 0).bytes()}, placement.blocks().replicas());
    }
  }
  // Declares the variables and sets them to these values.
  void give(VariableStore& store, const Placement& placement) const {
    for (const auto& [name, variable] : variables) {
      const auto& declaration = variable.declaration;
      store.declare(declaration);
      const auto bytes = declaration.type.bytes();
      for (int copy = 0; copy < store.copies(name) && bytes > 0; ++copy) {
        const auto replica = declaration.kind == VariableKind::mirrored ? 0 : static_cast<std::size_t>(placement.begin() + copy);
        std::memcpy(store.overwrite(name, copy).data(), variable.value.data() + replica * bytes, bytes);
      }
    }
  }

 private:
  void keep(const std::string& name, const VariableDeclaration& declaration, const std::vector<std::span<const std::byte>>& pieces, int replicas) {
    auto found = variables.find(name);
    if (found == variables.end())
      found = variables.emplace(name, Variable{declaration, AnyArray{checkpointed_type(declaration.type, declaration.kind, replicas)}}).first;
    auto* to = found->second.value.data();
    for (const auto piece : pieces) {
      if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
  }
};

// A snapshot for another process of the same program, which continues from it.
struct Handover {
  Snapshot snapshot;
  std::map<int, Resumption> steps;  // by ordinal: the progress of the steps that are still alive
};

// The bytes of a checkpoint. Checkpoint::moment holds the progress of the program, which a checkpoint file does not
// have.
inline std::vector<std::byte> pack_handover(const Snapshot& snapshot, const std::map<int, Resumption>& steps) {
  const auto& memory = snapshot.checkpoints;
  const auto& state = memory.state;
  Checkpoint checkpoint{state.experiment, state.next_ordinal, state.steps, state.variables, {}, {}};
  std::set<int> made;
  for (const auto& [ordinal, life] : memory.lives) made.insert(ordinal);
  checkpoint.moment = {{"call", std::to_string(snapshot.call)}, {"path", memory.path}, {"read", text_of(memory.read)}, {"declared", text_of(memory.declared)}, {"due", text_of(memory.due)}, {"made", text_of(made)}};
  for (const auto& [ordinal, step] : steps)
    checkpoint.moment["step " + std::to_string(ordinal)] = std::to_string(step.done) + (step.finished ? " finished" : "");
  std::vector<io::NamedTensor> tensors;
  for (const auto& [name, variable] : snapshot.variables) {
    checkpoint.moment["rank " + name] = std::to_string(variable.declaration.type.shape.rank());
    checkpoint.variables.try_emplace(name, CheckpointedVariable{variable.declaration.kind, {}});
    tensors.push_back({name, variable.value.type(), variable.value.data()});
  }
  for (const auto& [name, value] : state.values) tensors.push_back({name, value.type(), value.data()});
  return checkpoint_bytes(checkpoint, std::move(tensors));
}

class HandoverReader {
 public:
  HandoverReader(const std::string& name, std::span<const std::byte> bytes, int replicas)
      : name_{name}, replicas_{replicas}, from_{read_checkpoint(name, bytes)} {}

  Handover read() && {
    auto& memory = result_.snapshot.checkpoints;
    result_.snapshot.call = checkpoint_number<std::uint64_t>(name_, text("call"));
    memory.path = text("path");
    memory.read = numbers("read");
    memory.declared = numbers("declared");
    memory.due = numbers("due");
    for (const int ordinal : numbers("made")) memory.lives[ordinal];
    for (const auto& [key, value] : from_.moment) {
      if (key.starts_with("step ")) add_step(std::string_view{key}.substr(5), value);
      if (key.starts_with("rank ")) add_variable(key.substr(5), value);
    }
    from_.moment.clear();
    memory.state = std::move(from_);  // its values are those that no variable has received yet
    return std::move(result_);
  }

 private:
  const std::string& text(const std::string& key) const {
    const auto found = from_.moment.find(key);
    if (found == from_.moment.end()) throw error("it does not say \"" + key + "\"");
    return found->second;
  }
  std::set<int> numbers(const std::string& key) const { return CheckpointWords{name_, text(key)}.numbers(); }
  void add_step(std::string_view ordinal, const std::string& text) {
    CheckpointWords words{name_, text};
    auto& step = result_.steps[checkpoint_number<int>(name_, ordinal)];
    step.done = words.number<std::uint64_t>();
    step.finished = words.next() == "finished";
  }
  void add_variable(const std::string& name, const std::string& rank) {
    const auto value = from_.values.find(name);
    const auto known = from_.variables.find(name);
    if (value == from_.values.end() || known == from_.variables.end()) throw error("it does not have the variable \"" + name + "\"");
    VariableDeclaration declaration;
    declaration.name = name;
    declaration.kind = known->second.kind;
    declaration.type = type_of_a_replica(value->second.type(), declaration.kind, checkpoint_number<std::size_t>(name_, rank));
    const auto whole = checkpointed_type(declaration.type, declaration.kind, replicas_);
    if (std::to_string(declaration.type.shape.rank()) != rank || whole != value->second.type())
      throw error("its \"" + name + "\" " + value->second.type().text() + " is not of " + std::to_string(replicas_) + " replica(s) with " + rank +
                  " dimension(s)");
    result_.snapshot.variables.emplace(name, Snapshot::Variable{std::move(declaration), std::move(value->second)});
    from_.values.erase(value);
  }
  // The type of one replica's value, from the stacked type of all replicas and the variable's rank.
  TensorType type_of_a_replica(const TensorType& stacked, VariableKind kind, std::size_t rank) const {
    const auto& shape = stacked.shape;
    if (kind == VariableKind::mirrored || shape.rank() == 0) return stacked;
    if (rank < Shape::max_rank) return {stacked.dtype, Shape{std::span{shape.begin() + 1, shape.end()}}};
    auto result = stacked;
    result.shape[0] /= replicas_;
    return result;
  }
  DataError error(const std::string& what) const { return DataError{name_ + " is no state to go on from: " + what}; }

  const std::string& name_;
  int replicas_;
  Checkpoint from_;
  Handover result_;
};

// Throws DataError with `name` unless pack_handover() wrote these bytes in a job of so many replicas.
inline Handover unpack_handover(const std::string& name, std::span<const std::byte> bytes, int replicas) {
  return HandoverReader{name, bytes, replicas}.read();
}

// For a process that rejoins: reads what the first of the other processes has handed over. Throws CommunicationError
// with that process as its culprit if the bytes are damaged, or lack the progress of one of `steps`.
inline Handover received_handover(std::span<const std::byte> bytes, const transport::Job& job, const std::set<int>& steps, int replicas) {
  const int sender = job.rank() == 0 && job.size() > 1 ? 1 : 0;
  const auto name = "what " + job.describe(sender) + " handed over to this process";
  try {
    auto handover = unpack_handover(name, bytes, replicas);
    for (const int ordinal : steps)
      if (!handover.steps.contains(ordinal)) throw DataError{name + " does not say how far step " + std::to_string(ordinal) + " is"};
    return handover;
  } catch (const DataError& error) {
    throw CommunicationError{error.what(), sender};
  }
}

}  // namespace replicator::detail
