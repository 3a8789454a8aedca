// SPDX-License-Identifier: Apache-2.0
// What one device executes: kernels and collectives in order, with every buffer placed beforehand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <replicator/collectives/run/communicator.hpp>
#include <replicator/core/array.hpp>
#include <replicator/devices/tool_ranges.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/node.hpp>
#include <replicator/runtime/arena.hpp>
#include <replicator/runtime/handoffs.hpp>
#include <replicator/runtime/input_stage.hpp>
#include <replicator/runtime/memory_plan.hpp>
#include <replicator/runtime/queue.hpp>
#include <replicator/runtime/refusals.hpp>
#include <replicator/runtime/step_words.hpp>
#include <replicator/runtime/used_variables.hpp>

namespace replicator::detail {

// One of the nodes that a merged launch computes: the class of its graph, and its first input and output among the instruction's pointers.
struct LaunchPart {
  std::uint32_t graph = 0, node = 0;
  std::uint32_t inputs = 0, outputs = 0;
};

struct Instruction {
  enum class Kind : std::uint8_t {
    run,    // executable on the pointers: inputs, then outputs
    fold,   // pointers: into = combine(into, from)
    copy,   // pointers: from, to
    start,  // the collective's inputs are written
    wait,   // the collective's output is needed
    give,   // the value is written for other devices of the replica
    take,   // a value that another device of the replica gives is needed
    look,   // what kernels have refused until here ends the step
  };
  Kind kind = Kind::run;
  const Executable* executable = nullptr;
  std::uint32_t pointers = 0;  // index of the first one
  std::uint32_t inputs = 0;    // how many of them are inputs (run)
  std::uint32_t collective = 0;
  std::uint32_t place = 0;    // of the handoffs (give, take)
  std::int32_t replica = -1;  // -1: once for the device
  std::size_t bytes = 0;      // copy
  bool on_host = false;       // copy: from memory of the host to such, beside a device with memory of its own
  std::int64_t elements = 0;  // fold
  DType dtype = DType::float32;
  Reduction reduction = Reduction::sum;
  bool relayout = false;  // run: brings a value into the layout that the node's kernel wants
  // For messages, traces and plans: a node, and the class of the replica's graph it is in. Of a copy or a fold the node that
  // it serves, of a wait the first that needs the result; none where it is of no node.
  static constexpr std::uint32_t none = ~0u;
  std::uint32_t graph = none;
  std::uint32_t node = none;
  const Node* origin = nullptr;  // that node (run)
  // A launch that does the work of several nodes, of which `node` is the first: which of Program::parts they are. None of others.
  std::uint32_t parts = 0, first_part = 0;
  const std::byte* table = nullptr;  // of an executable that has one, in the device's memory
  Refusal* refused = nullptr;        // of an executable that refuses, in the device's memory
};

// Instructions [begin, end) that leave all to the device: captured in their second run, for kernels make things ready in the first.
struct Stretch {
  std::uint32_t begin = 0, end = 0;
  bool has_run = false;
  std::uint64_t seed = 0;  // of what was captured
  CapturedWork captured;
  std::string refused;  // why it could not be captured
};

// What a tool that is attached to the process is told; nothing where there is none.
struct RangeNames {
  const ToolRanges* tool = nullptr;
  std::vector<std::string> instructions;
  std::vector<std::string> stretches;
};

// Where the device computes on the host's memory: a pointer that is set before each step to component `element` of a replica's input.
struct InputPatch {
  std::uint32_t pointer = 0;
  std::uint32_t replica = 0;  // counted on this device
  std::uint32_t element = 0;
};

struct CollectiveUse {
  std::unique_ptr<collectives::Collective> collective;
  std::string text;      // all_reduce "loss" at train.cpp:31, and how many more
  std::string reason;    // why this schedule
  double predicted = 0;  // microseconds, on the job's topology; 0 where it is not known
  std::int64_t bytes = 0;
  int members = 1;
  collectives::CollectiveSpec spec;
  collectives::Schedule schedule;
  static constexpr std::uint32_t none = ~0u;
  std::uint32_t bucket = none;  // of the resolution; none: not the user's
  // The instruction at which the first contribution of the device is there; of the exchange of results, at which all are.
  std::uint32_t asked = 0;
};

// What a replica has for the next step: no element, or one whose shapes have a number. 8 bytes, for they travel in every step. The highest
// of them is the signal that asks its process to stop, 0 where none does; its highest bit says that somebody comes back to the job.
inline constexpr std::uint64_t no_upcoming = 0;
constexpr std::uint64_t upcoming_with(std::uint64_t shapes) { return shapes + 1; }
constexpr std::uint64_t shapes_of(std::uint64_t upcoming) { return upcoming - 1; }
constexpr std::uint64_t with_stop_signal(std::uint64_t upcoming, int signal) { return upcoming | static_cast<std::uint64_t>(signal) << 56; }
constexpr std::uint64_t with_newcomer(std::uint64_t upcoming, bool waits) { return upcoming | static_cast<std::uint64_t>(waits) << 63; }
constexpr int stop_signal_of(std::uint64_t upcoming) { return static_cast<int>(upcoming >> 56 & 0x7f); }
constexpr bool newcomer_of(std::uint64_t upcoming) { return upcoming >> 63 != 0; }
constexpr std::uint64_t without_signs(std::uint64_t upcoming) { return upcoming & ~(std::uint64_t{0xff} << 56); }

// An all_gather over the hosts at the end of a step. A replica's block: what it has for the next step, then its small results.
struct ResultExchange {
  static constexpr std::size_t largest_result = 4096;  // bytes; larger ones stay on their host
  std::uint32_t collective = 0;
  std::size_t block = 0;                // bytes of a replica; 0: a job of one host exchanges nothing
  std::vector<std::size_t> offsets;     // of each result in a block; 0: not exchanged
  std::vector<std::uint64_t> upcoming;  // by replica of the device; set before the step
};

// Where a replica finds the result of a collective, until the next step.
struct CollectedValue {
  std::uint32_t ordinal = 0;  // of the resolution
  std::int32_t replica = 0;   // counted on this device
  std::byte* data = nullptr;  // where its kernels read it
};

struct Program {
  std::vector<Instruction> code;
  std::vector<std::byte*> pointers;
  std::vector<std::size_t> pointer_bytes;                 // of the buffer that each of them points to
  std::vector<LaunchPart> parts;                          // of merged launches,
  std::vector<std::unique_ptr<const Executable>> merged;  // and what runs them
  std::vector<InputPatch> patches;
  std::uint32_t inputs_end = 0;  // elsewhere the instructions in front of this one bring inputs from the places of the stage
  std::vector<CollectiveUse> collectives;
  std::vector<PinnedMemory> pinned;  // the buffers of collectives, where a device copies from and to them
  std::vector<CollectedValue> collected;
  std::vector<std::uint32_t> in_flight;  // collectives started and not yet finished; reserved, so that a step allocates nothing
  UsedVariables variables;
  std::uint32_t updates_begin = 0;  // instructions in front of this one write no variable
  Handoffs* handoffs = nullptr;     // null where one device has all of a replica
  collectives::Communicator* communicator = nullptr;
  std::uint64_t tick = 0;  // steps begun
  Arena arena;
  InputStage stage;
  Refusals refusals;
  std::byte* scratch = nullptr;
  std::size_t arena_bytes = 0;  // for values, scratch excluded
  std::size_t scratch_bytes = 0;
  std::size_t stage_bytes = 0;           // behind the scratch
  std::size_t table_bytes = 0;           // behind the stage
  std::size_t constant_bytes = 0;        // behind the tables,
  const std::byte* constants = nullptr;  // where a device with memory of its own has them
  MemoryPlan memory;                     // of all that the program needs

  std::vector<std::int32_t> replica_ids;
  StepWords words;
  std::int32_t first_replica = 0;  // of all that run together: its device is the one to tell of what is uniform
  // results[k][r]: result k of the device's replica r; one entry for all where it is uniform.
  std::vector<std::vector<AnyArray>> results;
  std::vector<bool> uniform_result;
  ResultExchange exchange;
  std::vector<Stretch> stretches;  // ascending; none where the queue cannot capture
  RangeNames ranges;
  // Beside the arena: memory of collectives that the device holds.
  std::vector<std::span<const std::byte>> device_memory;
  std::string device;  // cuda:1
  Event settled;       // of the queue, where there is one: that it has done all
  Queue queue;         // the last: gone before the memory that its work uses
};

// Of a program on a device with memory of its own: whether this is there.
inline bool on_device(const Program& program, const std::byte* address) {
  const auto* const arena = program.arena.data();
  const auto holds = [address](std::span<const std::byte> memory) { return address >= memory.data() && address < memory.data() + memory.size(); };
  return (address >= arena && address < arena + program.arena.bytes()) || program.variables.has(address) ||
         std::any_of(program.device_memory.begin(), program.device_memory.end(), holds);
}

}  // namespace replicator::detail
