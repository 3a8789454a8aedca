// SPDX-License-Identifier: Apache-2.0
// The state of an experiment at a moment, in memory: what a job goes back to when it has lost a process.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
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
    AnyArray value;  // of a replica-local one: of all replicas, stacked
  };

  std::uint64_t call = 0;  // before which it was taken
  std::map<std::string, Variable> variables;
  Checkpoints::Memory checkpoints;

  // Every process calls it. Where it throws CommunicationError nothing has changed. Memory of variables is used again.
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
  // Declares the variables with these values.
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

}  // namespace replicator::detail
