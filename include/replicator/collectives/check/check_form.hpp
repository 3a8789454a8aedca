// SPDX-License-Identifier: Apache-2.0
// First part of the proof of a schedule: its form.
// - Operands lie inside their buffers.
// - A rank writes only to its own buffers.
// - Fields that an instruction does not use keep their defaults.
//
// Instructions get numbers here ("events"), which the later parts use.
#pragma once

#include <cstddef>
#include <replicator/collectives/schedule.hpp>
#include <string>
#include <vector>

namespace replicator::detail::collectives::detail {

// The instructions of a schedule in order of (rank, channel, index).
class Events {
 public:
  // `schedule` outlives this and has a program for every rank.
  explicit Events(const Schedule& schedule) : s_{schedule} {
    for (int rank = 0; rank < s_.ranks(); ++rank) {
      first_.emplace_back();
      const auto& program = s_.programs[static_cast<std::size_t>(rank)];
      for (int channel = 0; channel < static_cast<int>(program.size()); ++channel) {
        first_.back().push_back(count());
        const int length = static_cast<int>(program[static_cast<std::size_t>(channel)].size());
        for (int index = 0; index < length; ++index) places_.push_back({rank, channel, index});
      }
    }
  }

  int count() const { return static_cast<int>(places_.size()); }
  int rank_of(int event) const { return places_[static_cast<std::size_t>(event)].rank; }
  bool first_of_channel(int event) const { return places_[static_cast<std::size_t>(event)].index == 0; }
  const Instruction& operator[](int event) const {
    const Place& at = places_[static_cast<std::size_t>(event)];
    return s_.programs[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.channel)]
                      [static_cast<std::size_t>(at.index)];
  }
  // -1 where there is no such instruction.
  int find(const Dependency& d) const {
    if (d.rank < 0 || d.rank >= s_.ranks()) return -1;
    const auto& program = s_.programs[static_cast<std::size_t>(d.rank)];
    if (d.channel < 0 || d.channel >= static_cast<int>(program.size())) return -1;
    const auto channel = static_cast<std::size_t>(d.channel);
    if (d.instruction < 0 || d.instruction >= static_cast<int>(program[channel].size())) return -1;
    return first_[static_cast<std::size_t>(d.rank)][channel] + d.instruction;
  }
  // "rank 0, channel 1, instruction 2: <what>"
  std::string describe(int event, const std::string& what) const {
    const Place& at = places_[static_cast<std::size_t>(event)];
    return "rank " + std::to_string(at.rank) + ", channel " + std::to_string(at.channel) + ", instruction " +
           std::to_string(at.index) + ": " + what;
  }

 private:
  struct Place {
    int rank, channel, index;
  };

  const Schedule& s_;
  std::vector<Place> places_;
  std::vector<std::vector<int>> first_;  // [rank][channel]: its first event
};

// Checks what must hold before instructions can be numbered. Returns the fault, or an empty string.
inline std::string fault_of_frame(const Schedule& s) {
  const auto ranks = static_cast<std::size_t>(s.ranks());
  if (s.programs.size() != ranks || s.scratch.size() != ranks) return "not one program for each rank";
  if (s.chunks < 1) return "a block needs at least one chunk";
  const std::string groups = s.groups.fault(s.blocks.replicas());
  if (!groups.empty() || s.groups.count() == 0) return "no groups of its replicas: " + groups;
  for (int group = 0; group < s.groups.count(); ++group)
    if (s.kind == Kind::broadcast && (s.root < 0 || s.root >= s.groups.size(group))) return "no such root";
  return {};
}

// Checks each instruction by itself.
class FormCheck {
 public:
  FormCheck(const Schedule& schedule, const Events& events) : s_{schedule}, events_{events}, extents_(schedule.scratch.size()) {
    for (int rank = 0; rank < s_.ranks(); ++rank) inputs_.push_back(static_cast<int>(s_.inputs(rank).size()));
  }

  // Empty, or the first fault found.
  std::string fault() {
    for (int event = 0; event < events_.count(); ++event)
      if (const char* what = fault_of(event)) return events_.describe(event, what);
    return {};
  }

 private:
  struct Extent {
    int first = 0;
    int count = 0;
  };

  // The fault of one instruction by itself, or null.
  const char* fault_of(int event) {
    const Instruction& i = events_[event];
    const bool local = i.action == Action::copy || i.action == Action::reduce;
    const bool writes = i.action != Action::send;
    const bool reads = i.action != Action::recv;
    const int rank = events_.rank_of(event);
    if (writes ? !inside(i.dst) : i.dst != Operand{}) return "a bad destination";
    if (writes && (i.dst.rank != rank || i.dst.buffer == Buffer::input))
      return "writes what is not its rank's output or scratch";
    if (reads ? !inside(i.left) : i.left != Operand{}) return "a bad left operand";
    if (i.action == Action::reduce ? !inside(i.right) : i.right != Operand{}) return "a bad right operand";
    if (i.action == Action::send && i.left.rank != rank) return "sends what is another rank's";
    if (writes && reads && i.dst.count != i.left.count) return "copies between different sizes";
    if (i.action == Action::reduce && i.dst.count != i.right.count) return "reduces different sizes";
    // A reduce may work in place, for it loads before it stores.
    const bool in_place = i.action == Action::reduce;
    for (const Operand* o : {&i.left, &i.right})
      if (writes && reads && overlap(i.dst, *o) && !(in_place && i.dst == *o)) return "overwrites what it reads";
    for (const Operand* o : {&i.dst, &i.left, &i.right})
      if (!one_extent(*o)) return "uses scratch slots together that are not elsewhere";
    if (i.action == Action::reduce && !reduces(s_.kind)) return "nothing is to be reduced";
    if (local ? i.peer != -1 : (i.peer < 0 || i.peer >= s_.ranks() || i.peer == rank)) return "a bad peer";
    if (i.root && !local) return "a message is no root";
    for (const Dependency& d : i.after)
      if (events_.find(d) < 0) return "waits for an instruction that does not exist";
    return nullptr;
  }

  bool inside(const Operand& o) const {
    if (o.rank < 0 || o.rank >= s_.ranks() || o.index < 0 || o.chunk < 0 || o.count < 1) return false;
    const auto rank = static_cast<std::size_t>(o.rank);
    // Pieces cut every block, so an operand may not reach from one block into the next.
    if (o.chunk / s_.chunks != (o.chunk + o.count - 1) / s_.chunks) return false;
    switch (o.buffer) {
      case Buffer::input:
        return o.index < inputs_[rank] && o.chunk < s_.input_blocks() * s_.chunks;
      case Buffer::output:
        return o.index == 0 && o.chunk < s_.output_blocks(o.rank) * s_.chunks;
      case Buffer::scratch:
        return o.index + o.count <= s_.scratch[rank] && o.chunk < s_.input_blocks() * s_.chunks;
    }
    return false;
  }

  static bool overlap(const Operand& a, const Operand& b) {
    if (a.rank != b.rank || a.buffer != b.buffer) return false;
    if (a.buffer == Buffer::scratch) return a.index < b.index + b.count && b.index < a.index + a.count;
    return a.index == b.index && a.chunk < b.chunk + b.count && b.chunk < a.chunk + a.count;
  }

  // The chunks in slots that are used together lie end to end, and not slot by slot. Another extent of slots would name
  // other bytes, so all operands must use the same extent.
  bool one_extent(const Operand& o) {
    if (o.buffer != Buffer::scratch) return true;
    auto& extents = extents_[static_cast<std::size_t>(o.rank)];
    extents.resize(static_cast<std::size_t>(s_.scratch[static_cast<std::size_t>(o.rank)]));
    for (int slot = o.index; slot < o.index + o.count; ++slot) {
      Extent& known = extents[static_cast<std::size_t>(slot)];
      if (known.count == 0) known = {o.index, o.count};
      if (known.first != o.index || known.count != o.count) return false;
    }
    return true;
  }

  const Schedule& s_;
  const Events& events_;
  std::vector<int> inputs_;                   // [rank]: how many
  std::vector<std::vector<Extent>> extents_;  // [rank][slot]: the slots used with it
};

}  // namespace replicator::detail::collectives::detail
