// SPDX-License-Identifier: Apache-2.0
// What the files with algorithms share: an empty schedule, and instructions that know where their operands come from.
#pragma once

#include <cstddef>
#include <replicator/collectives/schedule.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// Where a value is and which instruction makes it; inputs have no maker.
struct Placed {
  Operand where;
  bool made = false;
  Dependency maker;
};

// With all members listed. Throws BuildError where the groups are no partition of these replicas, or not of equal sizes
// where blocks are counted by members.
inline Groups require_groups(Kind kind, const ReplicaBlocks& blocks, const Groups& groups) {
  const std::string fault = groups.fault(blocks.replicas()), asked = std::string{name_of(kind)} + " in the groups " + groups.text();
  if (!fault.empty()) throw BuildError{asked + ": " + fault + ": name every replica once, in ascending order"};
  if (kind != Kind::all_reduce && kind != Kind::broadcast && !groups.equal_sizes())
    throw BuildError{asked + ", whose sizes differ: make all groups equally large"};
  return groups.over(blocks.replicas());
}

// Throws BuildError as require_groups does.
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

// New scratch of a rank for `count` chunks.
inline Operand scratch_slots(Schedule& schedule, int rank, int chunk, int count) {
  int& used = schedule.scratch[static_cast<std::size_t>(rank)];
  used += count;
  return {Buffer::scratch, rank, used - count, chunk, count};
}

// Appends to the channel and returns where the result is. Values made elsewhere become dependencies; what the same
// channel made is there already.
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
