// SPDX-License-Identifier: Apache-2.0
// AllVariables: gathers the values of all variables from all processes, for digests and checkpoints.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <replicator/engine/placement.hpp>
#include <replicator/job/exchange_in_pieces.hpp>
#include <replicator/job/job.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

class AllVariables {
 public:
  // Collective: every process calls it. It exchanges the values of replica-local variables.
  AllVariables(const VariableStore& variables, transport::Job& job, const Placement& placement) : variables_{variables}, placement_{placement} {
    if (job.size() > 1) processes_ = transport::exchange_in_pieces(job, own(), sizes(job.size()), what);
  }

  // Calls f(name, declaration, pieces) for each variable, in the order of names. A mirrored variable has one piece. A
  // replica-local one has the values of all replicas in order, several replicas to a piece in a job of several
  // processes. The pieces are valid until the next step, or until this object is destroyed.
  template <class F>
  void for_each(F f) const {
    std::vector<std::size_t> position(processes_.size());
    for (const auto& name : variables_.names()) {
      const auto& declaration = variables_.declaration(name);
      std::vector<std::span<const std::byte>> pieces;
      if (declaration.kind == VariableKind::mirrored) pieces.push_back(variables_.value(name, 0).bytes());
      else if (processes_.empty()) add_own(pieces, name);
      else
        for (std::size_t process = 0; process < processes_.size(); ++process) {
          const auto bytes = declaration.type.bytes() * static_cast<std::size_t>(placement_.replicas_of(static_cast<int>(process)));
          pieces.push_back(std::span{processes_[process]}.subspan(position[process], bytes));
          position[process] += bytes;
        }
      f(name, declaration, pieces);
    }
  }

 private:
  static constexpr const char* what = "the exchange of replica-local variables";

  void add_own(std::vector<std::span<const std::byte>>& pieces, const std::string& name) const {
    for (int replica = 0; replica < variables_.copies(name); ++replica) pieces.push_back(variables_.value(name, replica).bytes());
  }
  // Bytes of replica-local values, for each process.
  std::vector<std::size_t> sizes(int processes) const {
    std::size_t of_a_replica = 0;
    for (const auto& name : variables_.names())
      if (const auto& declaration = variables_.declaration(name); declaration.kind == VariableKind::replica_local) of_a_replica += declaration.type.bytes();
    std::vector<std::size_t> result;
    for (int process = 0; process < processes; ++process) result.push_back(of_a_replica * static_cast<std::size_t>(placement_.replicas_of(process)));
    return result;
  }
  std::vector<std::byte> own() const {
    std::vector<std::span<const std::byte>> pieces;
    for (const auto& name : variables_.names())
      if (variables_.declaration(name).kind == VariableKind::replica_local) add_own(pieces, name);
    std::vector<std::byte> result;
    for (const auto piece : pieces) result.insert(result.end(), piece.begin(), piece.end());
    return result;
  }

  const VariableStore& variables_;
  const Placement& placement_;
  std::vector<std::vector<std::byte>> processes_;  // empty in a job of one process
};

}  // namespace replicator::detail
