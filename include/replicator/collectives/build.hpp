// SPDX-License-Identifier: Apache-2.0
// Helpers for the files in algorithms/. They make empty schedules, reserve scratch slots, and append instructions with
// their dependencies.
#pragma once

#include <cstddef>
#include <replicator/collectives/schedule.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// Location of a value, and the instruction that makes it. Inputs have no maker.
struct Placed {
  Operand where;
  bool made = false;
  Dependency maker;
};

// Returns the groups with all members listed. Throws BuildError where the groups are no partition of the replicas. Also
// throws where their sizes differ, except for all_reduce and broadcast, which do not count blocks by members.
inline Groups require_groups(Kind kind, const ReplicaBlocks& blocks, const Groups& groups) {
  const std::string fault = groups.fault(blocks.replicas()), asked = std::string{name_of(kind)} + " in the groups " + groups.text();
  if (!fault.empty()) throw BuildError{asked + ": " + fault + ": name every replica once, in ascending order"};
  if (kind != Kind::all_reduce && kind != Kind::broadcast && !groups.equal_sizes())
    throw BuildError{asked + ", whose sizes differ: make all groups equally large"};
  return groups.over(blocks.replicas());
}

// A schedule without instructions: `channels` empty channels on each rank. Throws BuildError as require_groups does.
inline Schedule empty_schedule(std::string name, Kind kind, const ReplicaBlocks& blocks, int chunks, int channels,
                               const Groups& groups = {}) {
  Schedule schedule;
  schedule.groups = require_groups(kind, blocks, groups);
  schedule.name = std::move(name);
  schedule.kind = kind;
  schedule.blocks = blocks;
  schedule.chunks = chunks;
  schedule.scratch.assign(static_cast<std::size_t>(blocks.ranks()), 0);
  schedule.programs.assign(static_cast<std::size_t>(blocks.ranks()),
                           std::vector<Channel>(static_cast<std::size_t>(channels)));
  return schedule;
}

// Reserves `count` new scratch slots of a rank.
inline Operand scratch_slots(Schedule& schedule, int rank, int chunk, int count) {
  int& used = schedule.scratch[static_cast<std::size_t>(rank)];
  used += count;
  return {Buffer::scratch, rank, used - count, chunk, count};
}

// Appends to the channel and returns the location of the result. Sources made on another rank or channel become
// dependencies. Sources of the same channel need none: its instructions run in order.
inline Placed append(Schedule& schedule, int rank, int channel, Instruction instruction,
                     const std::vector<Placed>& sources) {
  auto& program = schedule.programs[static_cast<std::size_t>(rank)][static_cast<std::size_t>(channel)];
  for (const Placed& source : sources)
    if (source.made && (source.maker.rank != rank || source.maker.channel != channel))
      instruction.after.push_back(source.maker);
  const Operand dst = instruction.dst;
  program.push_back(std::move(instruction));
  return {dst, true, {rank, channel, static_cast<int>(program.size()) - 1}};
}

}  // namespace replicator::detail::collectives::detail
