// SPDX-License-Identifier: Apache-2.0
// Program: all that one device executes in a step: kernels and collectives in order, with every buffer already placed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <replicator/collectives/run/communicator.hpp>
#include <replicator/core/array.hpp>
#include <replicator/devices/tool_ranges.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/node.hpp>
#include <replicator/runtime/arena.hpp>
#include <replicator/runtime/handoffs.hpp>
#include <replicator/runtime/input_stage.hpp>
#include <replicator/runtime/memory_need.hpp>
#include <replicator/runtime/queue.hpp>
#include <replicator/runtime/refusals.hpp>
#include <replicator/runtime/step_words.hpp>
#include <replicator/runtime/used_variables.hpp>

namespace replicator::detail {

// One node of a merged launch: its graph class, and the indices of its first input and output among the instruction's
// pointers.
struct LaunchPart {
  std::uint32_t graph = 0, node = 0;
  std::uint32_t inputs = 0, outputs = 0;
};

struct Instruction {
  enum class Kind : std::uint8_t {
    run,    // runs the executable on the pointers: inputs, then outputs
    fold,   // pointers: into = combine(into, from)
    copy,   // pointers: from, to
    start,  // the collective's inputs are written
    wait,   // the collective's output is needed
    give,   // a value for other devices of the replica is written
    take,   // a value from another device of the replica is needed
    look,   // ends the step if a kernel has refused a value so far
  };
  Kind kind = Kind::run;
  const Executable* executable = nullptr;
  std::uint32_t pointers = 0;  // index of the first pointer
  std::uint32_t inputs = 0;    // number of inputs among them (run)
  std::uint32_t collective = 0;
  std::uint32_t place = 0;    // index in the handoffs (give, take)
  std::int32_t replica = -1;  // -1: once for the device
  std::size_t bytes = 0;      // copy
  bool on_host = false;       // copy: from host to host memory, on a device with its own memory
  std::int64_t elements = 0;  // fold
  DType dtype = DType::float32;
  Reduction reduction = Reduction::sum;
  bool relayout = false;  // run: a layout copy for the kernel of `node`
  // For messages, traces and plans: a node, and the class of its graph. A copy or a fold has the node that it serves. A
  // wait has the first node that needs the result. none: the instruction belongs to no node.
  static constexpr std::uint32_t none = ~0u;
  std::uint32_t graph = none;
  std::uint32_t node = none;
  const Node* origin = nullptr;  // that node (run)
  // A merged launch computes several nodes, of which `node` is the first. These are their entries in Program::parts.
  // Other instructions have none.
  std::uint32_t parts = 0, first_part = 0;
  const std::byte* table = nullptr;  // in device memory, for an executable with a table
  Refusal* refused = nullptr;        // in device memory, for an executable that refuses values
};

// Instructions [begin, end) that leave all work to the device. They are captured in the second run by a thread, because
// kernels prepare themselves, and a library its handle of the thread, in the first.
struct Stretch {
  static constexpr int most_refusals = 2;

  std::uint32_t begin = 0, end = 0;
  std::thread::id ran_in;  // the thread of the last run that was not replayed
  int refusals = 0;        // captures that failed, one after the other
  std::uint64_t seed = 0;  // the seed that was captured
  CapturedWork captured;
  std::string refused;  // why it could not be captured
};

// The range names for a profiling tool that is attached to the process; empty if there is none.
struct RangeNames {
  const ToolRanges* tool = nullptr;
  std::vector<std::string> instructions;
  std::vector<std::string> stretches;
};

// If the device computes on host memory: a pointer that is set before each step to component `element` of a replica's
// input.
struct InputPatch {
  std::uint32_t pointer = 0;
  std::uint32_t replica = 0;  // counted on this device
  std::uint32_t element = 0;
};

struct CollectiveUse {
  std::unique_ptr<collectives::Collective> collective;
  std::string text;      // all_reduce "loss" at train.cpp:31, and the number of further members
  std::string reason;    // why this schedule was chosen
  double predicted = 0;  // microseconds, on the job's topology; 0: unknown
  std::int64_t bytes = 0;
  int members = 1;
  collectives::CollectiveSpec spec;
  collectives::Schedule schedule;
  static constexpr std::uint32_t none = ~0u;
  std::uint32_t bucket = none;  // of the resolution; none: not a collective of the user
  // The instruction at which the device's first contribution is ready. For the exchange of results: at which all are
  // ready.
  std::uint32_t asked = 0;
};

// A word about a replica's element for the next step: no element, or the number of its shapes plus 1, in 24 bits. It has
// 8 bytes, because it travels in every step. The higher bits hold signs of the replica's process:
// - 32 bits: a digest of the values that its program has set since the last step; 0: none;
// - 7 bits: the signal that asks it to stop; 0: none;
// - the highest bit: a process waits to rejoin the job.
inline constexpr std::uint64_t no_upcoming = 0;
constexpr std::uint64_t upcoming_with(std::uint64_t shapes) { return shapes + 1; }
constexpr std::uint64_t shapes_of(std::uint64_t upcoming) { return upcoming - 1; }
constexpr std::uint64_t with_stop_signal(std::uint64_t upcoming, int signal) { return upcoming | static_cast<std::uint64_t>(signal) << 56; }
constexpr std::uint64_t with_newcomer(std::uint64_t upcoming, bool waits) { return upcoming | static_cast<std::uint64_t>(waits) << 63; }
constexpr std::uint64_t with_sets(std::uint64_t upcoming, std::uint32_t sets) { return upcoming | std::uint64_t{sets} << 24; }
constexpr std::uint32_t sets_of(std::uint64_t upcoming) { return static_cast<std::uint32_t>(upcoming >> 24); }
constexpr int stop_signal_of(std::uint64_t upcoming) { return static_cast<int>(upcoming >> 56 & 0x7f); }
constexpr bool newcomer_of(std::uint64_t upcoming) { return upcoming >> 63 != 0; }
constexpr std::uint64_t without_signs(std::uint64_t upcoming) { return upcoming & 0xffffff; }

// An all_gather over the hosts at the end of a step. The block of a replica has the word about its next element, then
// its small results.
struct ResultExchange {
  static constexpr std::size_t largest_result = 4096;  // bytes; larger results stay on their host
  std::uint32_t collective = 0;
  std::size_t block = 0;                // bytes of a replica; 0: a job of one host exchanges nothing
  std::vector<std::size_t> offsets;     // of each result in a block; 0: not exchanged
  std::vector<std::uint64_t> upcoming;  // by replica of the device; set before the step
};

// The memory of a collective's result for one replica, until the next step.
struct CollectedValue {
  std::uint32_t ordinal = 0;  // index in the resolution
  std::int32_t replica = 0;   // counted on this device
  std::byte* data = nullptr;  // address that its kernels read
};

struct Program {
  std::vector<Instruction> code;
  std::vector<std::byte*> pointers;
  std::vector<std::size_t> pointer_bytes;                 // sizes of the buffers to which the pointers point
  std::vector<LaunchPart> parts;                          // nodes of merged launches
  std::vector<std::unique_ptr<const Executable>> merged;  // the executables of merged launches
  std::vector<InputPatch> patches;
  std::uint32_t inputs_end = 0;  // on a device with its own memory, the instructions before this one copy inputs from the places of the stage
  std::vector<CollectiveUse> collectives;
  std::vector<PinnedMemory> pinned;  // buffers of collectives, if a device copies from and to them
  std::vector<CollectedValue> collected;
  std::vector<std::uint32_t> in_flight;  // collectives in flight; reserved beforehand, so that a step allocates nothing
  UsedVariables variables;
  std::uint32_t updates_begin = 0;  // instructions before this one write no variable
  Handoffs* handoffs = nullptr;     // null if one device runs all of a replica
  collectives::Communicator* communicator = nullptr;
  std::uint64_t tick = 0;  // steps begun
  Arena arena;
  InputStage stage;
  Refusals refusals;
  std::byte* scratch = nullptr;
  std::size_t arena_bytes = 0;  // for values, without scratch
  std::size_t scratch_bytes = 0;
  std::size_t stage_bytes = 0;           // after the scratch
  std::size_t table_bytes = 0;           // after the stage
  std::size_t constant_bytes = 0;        // after the tables
  const std::byte* constants = nullptr;  // on a device with its own memory
  MemoryNeed memory;                     // of everything that the program needs

  std::vector<std::int32_t> replica_ids;
  StepWords words;
  std::int32_t first_replica = 0;  // the first replica of all that run together; only on its device is a uniform node not marked as repeated
  // results[k][r]: result k of the device's replica r. A uniform result has one entry for all.
  std::vector<std::vector<AnyArray>> results;
  std::vector<bool> uniform_result;
  ResultExchange exchange;
  std::vector<Stretch> stretches;  // ascending; empty if the queue cannot capture
  RangeNames ranges;
  // Memory of collectives on the device, outside the arena.
  std::vector<std::span<const std::byte>> device_memory;
  std::string device;  // cuda:1
  Event settled;       // for a queue: all its work is done
  Queue queue;         // declared last: destroyed before the memory that its work uses
};

// For a program on a device with its own memory: true if the address is in that memory.
inline bool on_device(const Program& program, const std::byte* address) {
  const auto* const arena = program.arena.data();
  const auto holds = [address](std::span<const std::byte> memory) { return address >= memory.data() && address < memory.data() + memory.size(); };
  return (address >= arena && address < arena + program.arena.bytes()) || program.variables.has(address) ||
         std::any_of(program.device_memory.begin(), program.device_memory.end(), holds);
}

}  // namespace replicator::detail
