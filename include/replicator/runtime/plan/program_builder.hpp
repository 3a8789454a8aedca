// SPDX-License-Identifier: Apache-2.0
// ProgramBuilder: a program under construction. Its instructions use numbered buffers, which get addresses at the end,
// by their lifetimes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <replicator/devices/device_support.hpp>
#include <replicator/runtime/plan/capturable_ranges.hpp>
#include <replicator/runtime/plan/place_in_arena.hpp>
#include <replicator/runtime/program.hpp>

namespace replicator::detail {

class ProgramBuilder {
 public:
  static constexpr std::uint32_t none = ~0u;

  // A buffer: its kind of memory and its lifetime.
  struct Memory {
    std::size_t bytes = 0;
    std::byte* fixed = nullptr;  // address; null: in the arena
    bool variable = false;       // the value of a variable at the start of the step
    bool on_device = false;      // fixed memory of a device with its own memory
    std::int32_t replica = -1;   // replica of an input element; -1: no input
    std::uint32_t element = 0;
    const std::byte* constant = nullptr;    // address of a constant; a device with its own memory gets one copy of it
    std::uint32_t first = none, last = 0;   // first and last instruction that uses it
    std::uint32_t shares = none;            // another buffer, in whose memory it is placed
    std::uint32_t copied = none;            // the buffer of the device's copy of this host memory
    std::uint32_t graph = none, value = 0;  // the graph class and lowered value that it holds, if any
    std::int32_t owner = -1;                // the replica that owns it; -1: the device
    bool kept = false;                      // a backward pass reads it
    bool in_arena() const { return fixed == nullptr && constant == nullptr && replica < 0; }
  };

  // For device `index` of its kind.
  ProgramBuilder(const DeviceSupport& support, int index) : support_{support}, index_{index} {}

  const DeviceSupport& support() const { return support_; }
  Program& program() { return program_; }
  const Program& program() const { return program_; }
  Memory& memory(std::uint32_t buffer) { return buffers_[buffer]; }
  const Memory& memory(std::uint32_t buffer) const { return buffers_[buffer]; }

  std::uint32_t new_buffer(Memory memory) {
    buffers_.push_back(memory);
    return static_cast<std::uint32_t>(buffers_.size() - 1);
  }
  // A buffer for existing memory. Asking again returns the same buffer, with the larger of both sizes.
  std::uint32_t fixed_buffer(std::byte* data, std::size_t bytes) {
    const auto [found, fresh] = fixed_.try_emplace(data, 0);
    if (fresh) {
      Memory memory;
      memory.fixed = data;
      memory.on_device = replicator::detail::on_device(program_, data);
      found->second = new_buffer(memory);
    }
    auto& memory = buffers_[found->second];
    memory.bytes = std::max(memory.bytes, bytes);
    return found->second;
  }
  // A buffer for host values that never change. Asking again returns the same buffer.
  std::uint32_t constant_buffer(const std::byte* data, std::size_t bytes) {
    if (support_.runs_on_host()) return fixed_buffer(const_cast<std::byte*>(data), bytes);
    const auto [found, fresh] = constants_.try_emplace({data, bytes}, 0);  // two views may begin at one address
    if (!fresh) return found->second;
    Memory memory;
    memory.bytes = bytes;
    memory.constant = data;
    program_.constant_bytes += aligned(bytes);
    return found->second = new_buffer(memory);
  }
  // A host buffer with the number of the step.
  std::uint32_t step_buffer() { return fixed_buffer(program_.words.step(), sizeof(std::uint64_t)); }
  std::uint32_t arena_buffer(std::size_t bytes) {
    Memory memory;
    memory.bytes = bytes;
    return new_buffer(memory);
  }

  // Makes this device current for the calling thread.
  void enter() const {
    if (support_.enter) support_.enter(index_);
  }
  // Names the node and replica of all instructions that are appended from here on.
  void set_origin(std::uint32_t graph, std::uint32_t node, std::int32_t replica) {
    graph_ = graph;
    node_ = node;
    replica_ = replica;
  }
  // Appends an instruction on these buffers.
  void append(Instruction instruction, const std::vector<std::uint32_t>& buffers) {
    instruction.graph = graph_;
    instruction.node = node_;
    instruction.replica = replica_;
    instruction.pointers = static_cast<std::uint32_t>(operands_.size());
    const auto position = static_cast<std::uint32_t>(program_.code.size());
    for (const auto buffer : buffers) {
      operands_.push_back(buffer);
      auto& memory = buffers_[buffer];
      memory.first = std::min(memory.first, position);
      memory.last = std::max(memory.last, position);
    }
    if (instruction.executable) program_.table_bytes += aligned(instruction.executable->table_bytes);
    if (instruction.executable && instruction.executable->refuses) program_.refusals.add(position);
    program_.code.push_back(instruction);
  }
  void copy(std::uint32_t from, std::uint32_t to, std::size_t bytes) {
    Instruction copy;
    copy.kind = Instruction::Kind::copy;
    copy.bytes = bytes;
    append(copy, {from, to});
  }
  // Appends the start of a collective, or the wait for it.
  void append_collective(Instruction::Kind kind, std::uint32_t collective) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.collective = collective;
    append(instruction, {});
  }
  // Ends the step here if a kernel has refused a value. Place it before all work that a refused step must not do.
  void look_at_refusals() {
    if (program_.refusals.bytes() == 0) return;
    set_origin(none, none, -1);
    Instruction look;
    look.kind = Instruction::Kind::look;
    append(look, {});
  }
  // An input component on a device with its own memory. The place where it arrives is soon needed for the next step, so
  // the program copies it from there once, at its beginning.
  std::uint32_t staged_input(std::uint32_t replica, std::uint32_t element, std::size_t bytes) {
    Memory place;
    place.bytes = bytes;
    place.replica = static_cast<std::int32_t>(replica);
    place.element = element;
    const auto arrives = new_buffer(place), made = arena_buffer(bytes);
    staged_.emplace(arrives, program_.stage_bytes);
    program_.stage_bytes += aligned(bytes);
    copy(arrives, made, bytes);
    program_.inputs_end = static_cast<std::uint32_t>(program_.code.size());
    return made;
  }
  // A buffer that kernels can read. Host memory does not change while a step reads it, so one copy is enough.
  std::uint32_t on_device(std::uint32_t buffer) {
    if (support_.runs_on_host() || buffers_[buffer].in_arena() || buffers_[buffer].on_device || buffers_[buffer].constant) return buffer;
    if (buffers_[buffer].copied == none) {
      const auto bytes = buffers_[buffer].bytes;
      const auto made = arena_buffer(bytes);
      buffers_[buffer].copied = made;
      copy(buffer, made, bytes);
    }
    return buffers_[buffer].copied;
  }
  // Lets the kernel that makes `buffer`, at or after instruction `since`, write directly to `to`. Returns false if the
  // old value is read later, or if the kernel does not allow it.
  bool write_in_place(std::uint32_t buffer, std::byte* to, std::uint32_t since) {
    auto& memory = buffers_[buffer];
    if (!memory.in_arena() || memory.first == none) return false;
    const auto position = memory.first;
    const auto& made_by = program_.code[position];
    if (made_by.kind != Instruction::Kind::run || made_by.replica >= 0 || position < since) return false;
    const auto old = fixed_.find(to);
    if (old != fixed_.end()) {
      const auto& variable = buffers_[old->second];
      if (variable.last > position && variable.first != none) return false;
      if (variable.last == position && !runs_in_place(made_by, buffer, old->second)) return false;
    }
    memory.fixed = to;
    return true;
  }
  // Gives every buffer its place. No instruction may be appended afterwards.
  void arrange() {
    share_in_place();
    std::vector<Lifetime> lifetimes;
    place_of_.assign(buffers_.size(), none);
    for (std::uint32_t b = 0; b < buffers_.size(); ++b) {
      const auto& memory = buffers_[b];
      if (!memory.in_arena() || memory.shares != none || memory.first == none) continue;
      place_of_[b] = static_cast<std::uint32_t>(lifetimes.size());
      lifetimes.push_back({memory.bytes, memory.first, memory.last});
    }
    layout_ = place_in_arena(lifetimes);
    program_.arena_bytes = layout_.bytes;
  }
  // The peak of the arena: the instruction, and the buffers that are alive then, in the order of their making.
  std::pair<std::uint32_t, std::vector<std::uint32_t>> peak() const {
    std::vector<std::size_t> begins(program_.code.size()), ends(program_.code.size() + 1);
    for (std::uint32_t b = 0; b < buffers_.size(); ++b) {
      if (place_of_[b] == none) continue;
      begins[buffers_[b].first] += buffers_[b].bytes;
      ends[buffers_[b].last + 1] += buffers_[b].bytes;
    }
    std::size_t held = 0, most = 0;
    std::uint32_t at = 0;
    for (std::uint32_t position = 0; position < begins.size(); ++position) {
      held += begins[position] - ends[position];
      if (held > most) most = held, at = position;
    }
    return {at, held_at(at)};
  }
  // Allocates the memory and writes every buffer's address. The builder is empty afterwards.
  Program finish() && {
    place();
    return std::move(program_);
  }

 private:
  bool runs_in_place(const Instruction& run, std::uint32_t output, std::uint32_t input) const {
    const auto& allowed = run.executable->in_place;
    for (std::size_t o = 0; o < run.executable->output_layouts.size(); ++o)
      if (operands_[run.pointers + run.inputs + o] == output)
        return o < allowed.size() && allowed[o] >= 0 &&
               operands_[run.pointers + static_cast<std::uint32_t>(allowed[o])] == input && !reads_twice(run, input);
    return false;
  }

  // Lets an output use the arena memory of an input that is not read later.
  void share_in_place() {
    for (std::uint32_t position = 0; position < program_.code.size(); ++position) {
      const auto& run = program_.code[position];
      if (run.kind != Instruction::Kind::run) continue;
      for (std::size_t o = 0; o < run.executable->in_place.size(); ++o) {
        const auto i = run.executable->in_place[o];
        if (i < 0) continue;
        auto& output = buffers_[operands_[run.pointers + run.inputs + o]];
        const auto input = owner(operands_[run.pointers + static_cast<std::uint32_t>(i)]);
        if (reads_twice(run, input)) continue;
        auto& source = buffers_[input];
        if (!output.in_arena() || !source.in_arena() || source.last != position || output.first != position || output.bytes != source.bytes) continue;
        output.shares = input;
        source.last = std::max(source.last, output.last);
      }
    }
  }
  // A kernel may overwrite an input only if no other input is the same memory.
  bool reads_twice(const Instruction& run, std::uint32_t buffer) const {
    int reads = 0;
    for (std::uint32_t i = 0; i < run.inputs; ++i) reads += owner(operands_[run.pointers + i]) == buffer;
    return reads > 1;
  }
  std::uint32_t owner(std::uint32_t buffer) const {
    while (buffers_[buffer].shares != none) buffer = buffers_[buffer].shares;
    return buffer;
  }

  // Of buffers that share memory, returns the one that is alive.
  std::vector<std::uint32_t> held_at(std::uint32_t position) const {
    std::vector<std::uint32_t> held;
    std::vector<std::uint32_t> turn(buffers_.size(), none);
    for (std::uint32_t b = 0; b < buffers_.size(); ++b) {
      const auto o = owner(b);
      if (place_of_[o] == none || buffers_[b].first > position || buffers_[o].last < position) continue;
      if (turn[o] == none || buffers_[turn[o]].first <= buffers_[b].first) turn[o] = b;
    }
    for (std::uint32_t o = 0; o < buffers_.size(); ++o)
      if (turn[o] != none) held.push_back(turn[o]);
    return held;
  }

  void place() {
    const auto scratch_end = program_.arena_bytes + aligned(program_.scratch_bytes), stage_end = scratch_end + program_.stage_bytes,
               tables_end = stage_end + program_.table_bytes, constants_end = tables_end + program_.constant_bytes;
    program_.arena = Arena{support_, index_, constants_end + program_.refusals.bytes()};
    program_.queue = Queue{support_, index_};
    if (!support_.runs_on_host()) program_.settled = Event{support_, index_};
    program_.scratch = program_.arena.data() + program_.arena_bytes;
    if (!support_.runs_on_host()) place_inputs(program_.arena.data() + scratch_end);
    if (!constants_.empty()) place_constants(program_.arena.data() + tables_end);
    for (const auto operand : operands_) {
      const auto b = owner(operand);
      const auto& memory = buffers_[b];
      if (memory.replica >= 0 && support_.runs_on_host())
        program_.patches.push_back({static_cast<std::uint32_t>(program_.pointers.size()),
                                    static_cast<std::uint32_t>(memory.replica), memory.element});
      program_.pointer_bytes.push_back(memory.bytes);
      program_.pointers.push_back(memory.fixed || memory.constant ? memory.fixed
                                  : staged_.contains(b)           ? program_.arena.data() + scratch_end + staged_.at(b)
                                  : memory.replica >= 0           ? nullptr
                                                                  : program_.arena.data() + layout_.offsets[place_of_[b]]);
    }
    if (program_.table_bytes) write_tables(program_.arena.data() + stage_end);
    if (program_.refusals.bytes()) place_refusals(program_.arena.data() + constants_end);
    if (!support_.runs_on_host()) find_host_copies();
    if (program_.queue.can_capture()) program_.stretches = find_stretches(program_);
  }
  void find_host_copies() {
    for (auto& instruction : program_.code) {
      const auto* operands = program_.pointers.data() + instruction.pointers;
      instruction.on_host = instruction.kind == Instruction::Kind::copy && !replicator::detail::on_device(program_, operands[0]) &&
                            !replicator::detail::on_device(program_, operands[1]);
    }
  }
  static std::size_t aligned(std::size_t bytes) { return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment; }

  void write_tables(std::byte* to) {
    program_.queue.enter();
    for (auto& instruction : program_.code) {
      if (!instruction.executable || !instruction.executable->table_bytes) continue;
      const auto* operands = program_.pointers.data() + instruction.pointers;
      const auto table = instruction.executable->table(operands, operands + instruction.inputs);
      program_.queue.copy(to, table.data(), table.size());
      program_.queue.synchronise();
      instruction.table = to;
      to += aligned(table.size());
    }
  }

  void place_constants(std::byte* to) {
    program_.constants = to;
    program_.queue.enter();
    for (const auto& [bytes, buffer] : constants_) {
      auto& memory = buffers_[buffer];
      memory.fixed = to;
      program_.queue.copy(to, bytes.first, memory.bytes);
      program_.queue.synchronise();
      to += aligned(memory.bytes);
    }
  }
  void place_refusals(std::byte* at) {
    program_.queue.enter();
    program_.refusals.place(support_, program_.queue, at);
    auto* refused = reinterpret_cast<Refusal*>(at);
    for (const auto position : program_.refusals.instructions()) program_.code[position].refused = refused++;
  }

  void place_inputs(std::byte* begin) {
    std::vector<InputPlace> places;
    for (const auto& [buffer, offset] : staged_) {
      const auto& memory = buffers_[buffer];
      places.push_back({static_cast<std::uint32_t>(memory.replica), memory.element, memory.bytes, begin + offset});
    }
    if (!places.empty()) program_.stage = InputStage{support_, index_, std::move(places)};
  }

  const DeviceSupport& support_;
  int index_;
  Program program_;
  std::vector<Memory> buffers_;
  std::vector<std::uint32_t> operands_;  // buffers, parallel to Program::pointers
  std::map<std::byte*, std::uint32_t> fixed_;
  std::map<std::pair<const std::byte*, std::size_t>, std::uint32_t> constants_;
  std::map<std::uint32_t, std::size_t> staged_;  // buffers in which inputs arrive -> their offsets after the scratch
  std::uint32_t graph_ = none, node_ = none;
  std::int32_t replica_ = -1;
  ArenaLayout layout_;
  std::vector<std::uint32_t> place_of_;  // buffer -> index in the layout
};

}  // namespace replicator::detail
