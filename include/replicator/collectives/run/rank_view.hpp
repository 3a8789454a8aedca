// SPDX-License-Identifier: Apache-2.0
// Facts about a schedule that one rank needs before it runs: which ranks wait for its lines, and which read its buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <replicator/collectives/schedule.hpp>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// Whether the instruction copies from a finished output. Inside a rank only roots are copied there.
inline bool fetches_output(const Instruction& i) {
  return i.action == Action::copy && !i.root && i.left.buffer == Buffer::output;
}

// Whether roots may be stored into the outputs of all ranks. That requires that only roots are fetched from outputs, by
// copies to the same place. A root depends on all inputs of the step. So every rank has started the step and given up the
// output of the last one.
inline bool can_push(const Schedule& schedule) {
  // In groups not every rank needs every root.
  if (schedule.kind != Kind::all_reduce || !schedule.groups.everybody()) return false;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
      for (const Instruction& i : channel) {
        if (i.action == Action::reduce && i.right.rank != rank && i.right.buffer == Buffer::output) return false;
        if (i.left.rank == rank || i.left.buffer != Buffer::output) continue;
        if (i.action != Action::copy || i.after.size() != 1 || i.dst.buffer != Buffer::output) return false;
        const Dependency& d = i.after.front();
        const Instruction& maker =
            schedule.programs[static_cast<std::size_t>(d.rank)][static_cast<std::size_t>(d.channel)]
                             [static_cast<std::size_t>(d.instruction)];
        const bool same_place = i.dst.chunk == i.left.chunk && i.dst.count == i.left.count;
        if (!maker.root || maker.action != Action::reduce || maker.dst != i.left || !same_place) return false;
      }
  return true;
}

// [channel][instruction] of `rank`: whether another rank waits for it.
inline std::vector<std::vector<bool>> told_lines(const Schedule& schedule, int rank) {
  std::vector<std::vector<bool>> told;
  for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
    told.emplace_back(channel.size(), false);
  for (int other = 0; other < schedule.ranks(); ++other)
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(other)])
      for (const Instruction& i : channel)
        for (const Dependency& d : i.after)
          if (other != rank && d.rank == rank)
            told[static_cast<std::size_t>(d.channel)][static_cast<std::size_t>(d.instruction)] = true;
  return told;
}

// [channel][instruction]: the number of a message, so that the k-th send to a peer meets the peer's k-th recv from here.
inline std::vector<std::vector<std::uint64_t>> message_ordinals(const std::vector<Channel>& program) {
  std::vector<std::vector<std::uint64_t>> ordinals;
  std::map<std::pair<int, Action>, std::uint64_t> count;
  for (const Channel& channel : program) {
    ordinals.emplace_back();
    for (const Instruction& i : channel) ordinals.back().push_back(i.peer < 0 ? 0 : count[{i.peer, i.action}]++);
  }
  return ordinals;
}

// [rank][channel]: how many instructions are certainly done when all instructions of `rank` are.
inline std::vector<std::vector<std::size_t>> known_at_end(const Schedule& schedule, int rank) {
  std::vector<std::vector<std::size_t>> known;
  for (const auto& program : schedule.programs) known.emplace_back(program.size(), 0);
  std::vector<Dependency> open;
  const auto& mine = schedule.programs[static_cast<std::size_t>(rank)];
  for (std::size_t c = 0; c < mine.size(); ++c)
    if (!mine[c].empty()) open.push_back({rank, static_cast<int>(c), static_cast<int>(mine[c].size()) - 1});
  while (!open.empty()) {
    const Dependency d = open.back();
    open.pop_back();
    std::size_t& count = known[static_cast<std::size_t>(d.rank)][static_cast<std::size_t>(d.channel)];
    const auto& channel = schedule.programs[static_cast<std::size_t>(d.rank)][static_cast<std::size_t>(d.channel)];
    for (; count <= static_cast<std::size_t>(d.instruction); ++count)
      open.insert(open.end(), channel[count].after.begin(), channel[count].after.end());
  }
  return known;
}

// Whether some rank loads from another rank's output. Does not count values that are pushed, see can_push.
inline bool loads_outputs(const Schedule& schedule, bool pushing) {
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
      for (const Instruction& i : channel) {
        if (pushing && fetches_output(i)) continue;
        if (i.action != Action::recv && i.left.rank != rank && i.left.buffer == Buffer::output) return true;
        if (i.action == Action::reduce && i.right.rank != rank && i.right.buffer == Buffer::output) return true;
      }
  return false;
}

// Whether an output may be written over an input that peers read. In an all_reduce the value that overwrites an input was
// computed from it, so the input has been read. That is enough where each input is read only once.
inline bool reads_inputs_once(const Schedule& schedule) {
  if (schedule.kind != Kind::all_reduce) return false;
  std::set<std::tuple<int, int, int>> seen;
  const auto again = [&](const Operand& o) {
    if (o.buffer != Buffer::input) return false;
    bool found = false;
    for (int chunk = o.chunk; chunk < o.chunk + o.count; ++chunk) found = !seen.insert({o.rank, o.index, chunk}).second || found;
    return found;
  };
  for (const auto& program : schedule.programs)
    for (const Channel& channel : program)
      for (const Instruction& i : channel)
        if ((i.action != Action::recv && again(i.left)) || (i.action == Action::reduce && again(i.right))) return false;
  return true;
}

// The other ranks that read a rank's buffers.
struct Readers {
  std::vector<int> outputs;  // ranks that read this rank's output or scratch
  std::vector<int> inputs;   // ranks that may still read its inputs when its own instructions are done
};

// `pushing`: roots are stored into the outputs, see can_push.
inline Readers readers_of(const Schedule& schedule, int rank, bool pushing) {
  const auto known = known_at_end(schedule, rank);
  Readers result;
  for (int other = 0; other < schedule.ranks(); ++other) {
    if (other == rank) continue;
    bool outputs = false, inputs = false;
    const auto& program = schedule.programs[static_cast<std::size_t>(other)];
    for (std::size_t c = 0; c < program.size(); ++c)
      for (std::size_t k = 0; k < program[c].size(); ++k) {
        const Instruction& i = program[c][k];
        for (const Operand* o : {&i.left, &i.right}) {
          const bool used = o == &i.left ? i.action != Action::recv : i.action == Action::reduce;
          if (!used || o->rank != rank || (pushing && fetches_output(i))) continue;
          outputs = outputs || o->buffer != Buffer::input;
          inputs = inputs || (o->buffer == Buffer::input && known[static_cast<std::size_t>(other)][c] <= k);
        }
      }
    if (outputs) result.outputs.push_back(other);
    if (inputs) result.inputs.push_back(other);
  }
  return result;
}

}  // namespace replicator::detail::collectives::detail
