// SPDX-License-Identifier: Apache-2.0
// ShardLookup: finds the shard and the variables that a call names. Calls come from other processes, so each is checked
// first. It refuses a call that its sender may not make, or that names something this process lacks.
#pragma once

#include <string>
#include <vector>

#include <replicator/async/async_programs.hpp>
#include <replicator/async/shard_call.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

class ShardLookup {
 public:
  // All arguments outlive this object.
  ShardLookup(const transport::Job& job, AsyncPrograms& programs, const ShardRanks& ranks) : job_{job}, programs_{programs}, ranks_{ranks} {}

  // A client acts only for groups of its own process, and only before its last step. `finished`: it has reported its
  // last step.
  void require_possible(const ShardCall& call, int rank, bool finished) const {
    const bool acts = call.kind == ShardCall::Kind::read || call.kind == ShardCall::Kind::update || call.kind == ShardCall::Kind::report;
    if (finished && (acts || call.kind == ShardCall::Kind::finished)) throw refusal(rank, "a call for a step after its last one");
    if (!acts) return;
    const auto& placement = programs_.placement();
    if (call.group < 0 || call.group >= placement.groups() || placement.process_of(call.group) != ranks_.process_of(rank))
      throw refusal(rank, "a call for group " + std::to_string(call.group) + ", which it does not have");
  }
  CommunicationError refusal(int rank, const std::string& call) const {
    const int process = ranks_.process_of(rank);
    return {job_.describe(process) + " makes " + call, process};
  }

  // The functions below throw CommunicationError if this process does not own the shard, or if the shard has no such
  // variable.
  AsyncShard& shard_of(const ShardCall& call) const {
    auto& shards = programs_.shards();
    if (call.shard >= shards.size() || !shards[call.shard]->gate)
      throw CommunicationError{"shard " + std::to_string(call.shard) + " was asked for at " + job_.describe(job_.rank()) + ", which does not have it", -1};
    return *shards[call.shard];
  }
  // The shard's variables that steps of any process read.
  const std::vector<std::string>& names_of(const ShardCall& call) const {
    shard_of(call);
    return programs_.copies().names(call.shard);
  }
  const std::string& variable_of(const ShardCall& call) const {
    const auto& variables = shard_of(call).variables;
    if (call.variable < variables.size()) return variables[call.variable];
    throw CommunicationError{"variable " + std::to_string(call.variable) + " of shard " + std::to_string(call.shard) + " was asked for at " +
                                 job_.describe(job_.rank()) + ": it has " + std::to_string(variables.size()),
                             -1};
  }

 private:
  const transport::Job& job_;
  AsyncPrograms& programs_;
  const ShardRanks& ranks_;
};

}  // namespace replicator::detail
