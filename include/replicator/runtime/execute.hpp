// SPDX-License-Identifier: Apache-2.0
// execute(): runs a device's program for one step.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/core/deadline_wait.hpp>
#include <replicator/core/replicas_text.hpp>
#include <replicator/runtime/execution_options.hpp>
#include <replicator/runtime/program.hpp>

namespace replicator::detail {

class Execution {
 public:
  Execution(Program& program, InputStage::Inputs inputs, const ExecutionOptions& options)
      : program_{program}, inputs_{inputs}, options_{options}, record_{options.record}, pending_{program.in_flight} {
    pending_.clear();
  }

  void run() {
    try {
      run_step();
    } catch (...) {
      leave();
      throw;
    }
  }

 private:
  static constexpr std::chrono::milliseconds soon{100};  // a wait of this length is long
  static constexpr std::chrono::seconds look_again{1};

  void run_step() {
    program_.variables.bring();
    program_.queue.enter();  // another device is current if variables were copied from there
    const ToolRange range{tool_, tool_ ? step_name().c_str() : nullptr};
    if (options_.watch) begin_watch(*options_.watch);
    if (record_) record_->begin(options_.compiled, options_.step, coarse_clock());
    program_.stage.bring(program_.queue, inputs_, options_.step);
    auto stretch = program_.stretches.begin();
    const auto no_stretch = options_.capture && !watch_ ? program_.stretches.end() : stretch;
    const auto end = options_.rehearsal ? program_.updates_begin : static_cast<std::uint32_t>(program_.code.size());
    for (std::uint32_t position = 0; position < end;) {
      if (record_) record_->at(position);
      if (position == program_.updates_begin) program_.variables.begin_changes();
      if (stretch != no_stretch && stretch->begin == position && replay(*stretch)) position = stretch->end;
      else step(program_.code[position++]);
      if (stretch != no_stretch && stretch->end <= position) ++stretch;
      if (position == program_.inputs_end) program_.stage.taken(program_.queue);
      advance();  // communication continues beside the kernels
    }
    prefetch();
    settle();
    if (!options_.rehearsal) program_.variables.end_changes();
    if (watch_) watch_->end();
    if (record_) record_->end();
  }

  std::uint32_t position_of(const Instruction& instruction) const {
    return static_cast<std::uint32_t>(&instruction - program_.code.data());
  }
  void finish(std::size_t i) {
    if (watch_) watch_->finished(pending_[i]);
    if (record_) record_->finished(pending_[i]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // Called once, before the host first waits for the device. The device then has enough queued work to run meanwhile.
  void prefetch() {
    if (!std::exchange(prefetched_, true)) program_.stage.prefetch(options_.next, options_.step + 1);
  }
  void begin_watch(Watch& watch) {
    watch.begin(program_, options_.step);
    if (watch.looks()) watch_ = &watch;
  }
  std::string step_name() const { return "step " + std::to_string(options_.step); }
  void step(const Instruction& instruction) {
    const ToolRange range{tool_, tool_ ? program_.ranges.instructions[position_of(instruction)].c_str() : nullptr};
    if (watch_) watched(instruction);
    else execute(instruction);
  }
  // Returns false if the stretch's instructions must run one by one.
  bool replay(Stretch& stretch) {
    if (stretch.captured.empty() || stretch.seed != options_.seed) {
      const bool is_prepared = std::exchange(stretch.ran_in, std::this_thread::get_id()) == std::this_thread::get_id();
      if (!is_prepared || stretch.refusals == Stretch::most_refusals) return false;
      capture(stretch);
      if (stretch.captured.empty()) return false;
    }
    const ToolRange range{tool_, tool_ ? program_.ranges.stretches[static_cast<std::size_t>(&stretch - program_.stretches.data())].c_str() : nullptr};
    program_.queue.replay(stretch.captured);
    return true;
  }
  // Nothing has run yet, so an error is only noted. If the instructions run one by one, the faulty one raises it again.
  void capture(Stretch& stretch) {
    try {
      stretch.captured = program_.queue.capture([&] {
        for (auto position = stretch.begin; position < stretch.end; ++position) execute(program_.code[position]);
      });
      stretch.seed = options_.seed;
      stretch.refusals = 0;
      stretch.refused.clear();
    } catch (const std::exception& error) {
      stretch.captured = {};
      stretch.refused = error.what();
      if (++stretch.refusals == Stretch::most_refusals)
        std::fprintf(stderr, "replicator: instructions %u to %u of a step could not be captured, and are launched one by one: %s\n", stretch.begin,
                     stretch.end - 1, error.what());
    }
  }
  // A watch sees finished instructions, so each one is awaited.
  void watched(const Instruction& instruction) {
    const auto position = position_of(instruction);
    watch_->before(position);
    execute(instruction);
    settle(instruction.origin);
    advance();
    watch_->after(position);
  }
  void execute(const Instruction& instruction) {
    std::byte* const* pointers = program_.pointers.data() + instruction.pointers;
    switch (instruction.kind) {
      case Instruction::Kind::run: {
        const Launch launch{pointers, pointers + instruction.inputs, program_.scratch, {options_.seed, options_.step, static_cast<std::uint32_t>(instruction.replica < 0 ? 0 : instruction.replica), instruction.replica < 0, repeats(instruction)}, program_.queue.handle(), instruction.executable->reads_step ? step_number(instruction) : nullptr, instruction.table, instruction.refused};
        if (instruction.executable->needs_host) {  // settles first: otherwise it would wait in the driver for earlier work
          prefetch();
          settle(instruction.origin);
        }
        run_kernel(instruction, launch);
        break;
      }
      case Instruction::Kind::fold:
        program_.queue.fold(instruction.dtype, instruction.reduction, pointers[0], pointers[1], instruction.elements);
        break;
      case Instruction::Kind::copy: copy(instruction, pointers[0], pointers[1]); break;
      case Instruction::Kind::start: start(instruction.collective); break;
      case Instruction::Kind::wait:
        wait(instruction.collective);
        if (auto* device = program_.collectives[instruction.collective].collective->on_device()) device->precede(program_.queue.handle());
        break;
      case Instruction::Kind::give:
        prefetch();
        settle();
        program_.handoffs->give(instruction.place, program_.tick);
        break;
      case Instruction::Kind::take: take(instruction.place); break;
      case Instruction::Kind::look:
        prefetch();
        settle();
        break;
    }
  }
  void copy(const Instruction& instruction, const std::byte* from, std::byte* to) {
    if (!instruction.on_host) return program_.queue.copy(to, from, instruction.bytes);
    prefetch();
    settle();
    std::memcpy(to, from, instruction.bytes);
  }
  void start(std::uint32_t index) {
    auto& collective = *program_.collectives[index].collective;
    if (auto* device = collective.on_device()) {
      device->start_behind(program_.queue.handle());
    } else {
      prefetch();
      settle();
      collective.start();
    }
    pending_.push_back(index);
    if (record_) record_->started(index);
  }
  // True if another device, or another computation of this step, has the effect of this instruction.
  bool repeats(const Instruction& instruction) const {
    return options_.rehearsal || (instruction.replica < 0 && program_.replica_ids.front() != program_.first_replica);
  }
  // The pointer to the step number comes after those of the outputs.
  const std::uint64_t* step_number(const Instruction& instruction) const {
    const auto outputs = static_cast<std::uint32_t>(instruction.executable->output_layouts.size());
    return reinterpret_cast<const std::uint64_t*>(program_.pointers[instruction.pointers + instruction.inputs + outputs]);
  }
  static void run_kernel(const Instruction& instruction, const Launch& launch) {
    blaming(instruction, [&] { instruction.executable->run(launch); });
  }
  // Adds replica, operation and source line to a DataError, because a kernel does not know them.
  template <class Work>
  static void blaming(const Instruction& instruction, Work work) {
    try {
      work();
    } catch (const DataError& error) {
      const std::string replica = instruction.replica < 0 ? "" : "replica " + std::to_string(instruction.replica) + ": ";
      throw DataError{replica + instruction.origin->title() + " at " + instruction.origin->where.text() + ": " + error.what()};
    }
  }
  void advance() {
    for (std::size_t i = 0; i < pending_.size();) {
      auto& collective = *program_.collectives[pending_[i]].collective;
      if (collective.advance() && !(watch_ && under_way(collective))) finish(i);
      else ++i;
    }
  }
  // True if the collective still runs on the device although the host has queued all of it.
  static bool under_way(collectives::Collective& collective) {
    const auto* const device = collective.on_device();
    return device && !device->done();
  }
  using Time = DeadlineWait::Time;
  DeadlineWait wait_from(Time now) const { return DeadlineWait{limits(), now}; }
  // If no other device waits for this one, lateness is reported but is no error.
  DeadlineWait device_wait_from(Time now) const {
    return program_.communicator->size() > 1 || program_.handoffs ? wait_from(now) : DeadlineWait{{.late = limits().late}, now};
  }
  WaitLimits limits() const { return {options_.deadline, record_ ? options_.late : std::chrono::nanoseconds{}}; }
  static std::int64_t nanoseconds(Time time) { return std::chrono::nanoseconds{time.time_since_epoch()}.count(); }

  void wait(std::uint32_t index) {
    auto& collective = *program_.collectives[index].collective;
    if (collective.advance()) return;
    const auto now = transport::Clock::now();
    if (!record_) {
      const auto end = wait_from(now).deadline();
      if (!collective.wait_until(end, others_)) collective.wait(end);
      return;
    }
    record_->waits(nanoseconds(now));
    try {
      wait_aloud(collective, now);
    } catch (const CommunicationError&) {  // the code that reports the error also reports how far the collective had come
      misses(collective);
      throw;
    }
    record_->waits_no_more();
  }
  void misses(const collectives::Collective& collective) const {
    const auto missing = collective.missing();
    record_->misses(missing.rank, missing.moved_bytes);
  }
  // Only this thread can see which rank is missing, so it records that as soon as the wait is long.
  void wait_aloud(collectives::Collective& collective, Time begun) {
    auto wait = wait_from(begun);
    for (auto until = begun + soon; !collective.wait_until(std::min(until, wait.next()), others_);) {
      misses(collective);
      const auto now = transport::Clock::now();
      if (wait.is_over(now)) return collective.wait(wait.deadline());
      if (wait.becomes_late(now)) options_.tell_late();
      until = now + look_again;
    }
  }
  // While it waits, it advances the collectives in flight, because their peers may need this device.
  void take(std::uint32_t place) {
    auto& handoffs = *program_.handoffs;
    if (handoffs.given(place, program_.tick)) return;
    const auto now = transport::Clock::now();
    if (record_) record_->waits(nanoseconds(now));
    auto wait = wait_from(now);
    const bool there = handoffs.wait(place, program_.tick, wait.deadline(), [&] {
      program_.communicator->check();
      if (wait.becomes_late(transport::Clock::now())) options_.tell_late();
      advance();
      return !pending_.empty();
    });
    if (!there) throw late(place);
    if (record_) record_->waits_no_more();
  }
  CommunicationError late(std::uint32_t place) const {
    const auto& ids = program_.replica_ids;
    return {"a device of " + replicas_text(ids.front(), ids.back(), "the replicas ") + " waited until the deadline for " +
                program_.handoffs->text(place) + (ids.size() == 1 ? ", which its device " : ", which their device ") + std::to_string(program_.handoffs->device_of(place)) +
                " gives. It is stopped or slow: look there, or allow more time with --deadline",
            program_.communicator->rank()};
  }

  // Waits until the device has done all its work; `last` is the last node of that, if known. It polls instead of
  // waiting in the driver. A wait in the driver would notice neither a hang nor a failure elsewhere, and communication
  // would stop meanwhile.
  void settle(const Node* last = nullptr) {
    const auto& queue = program_.queue;
    if (!queue.handle()) return;
    program_.refusals.bring(queue);
    program_.settled.record(queue);
    if (!program_.settled.happened()) await(last);
    queue.synchronise();  // throws if something has failed
    if (const auto refused = program_.refusals.first()) {
      const auto& instruction = program_.code[refused->instruction];
      blaming(instruction, [&] { instruction.executable->refuse(refused->what); });
    }
  }
  void await(const Node* last) {
    const auto now = transport::Clock::now();
    if (record_) record_->waits(nanoseconds(now));
    auto wait = device_wait_from(now);
    while (!program_.settled.happened()) {
      const auto time = transport::Clock::now();
      if (wait.is_over(time) && (!waits_for_others() || time - wait.deadline() >= others_first)) throw hangs(last);
      if (wait.becomes_late(time)) options_.tell_late();
      program_.communicator->check();
      advance();
      ::sched_yield();
    }
    if (record_) record_->waits_no_more();
  }
  // After a failed step: waits until the device has done its work, or gives the device up at the deadline. Does not wait long for
  // queues of other processes. Waits for those of collectives too, because most calls that free memory wait for them.
  void leave() noexcept {
    if (!program_.queue.handle()) return;
    try {
      const auto begun = transport::Clock::now();
      const auto wait = device_wait_from(begun);
      bool may_be_lost = false;
      for (const auto& use : program_.collectives)
        if (auto* const device = use.collective->on_device()) may_be_lost = device->join_after_failure(program_.queue.handle()) || may_be_lost;
      program_.settled.record(program_.queue);
      while (!program_.settled.happened() && !program_.queue.abandoned()) {
        const auto now = transport::Clock::now();
        if (wait.is_over(now) || (may_be_lost && now - begun > transport::after_failure)) return program_.queue.abandon();
        ::sched_yield();
      }
    } catch (const DeviceError&) {  // the error has been reported already, or is not worth reporting
    }
  }
  // True if the device has reached all collectives that it waits for.
  bool waits_for_others() const {
    return std::all_of(program_.collectives.begin(), program_.collectives.end(), [](const CollectiveUse& use) {
      const auto* const device = use.collective->on_device();
      return !device || device->reached();
    });
  }
  DeviceError hangs(const Node* last) {
    program_.queue.abandon();
    const auto& ids = program_.replica_ids;
    const std::string what = last ? last->title() + " at " + last->where.text() : "what it was given";
    return DeviceError{step_name() + ": " + program_.device + ", of " + replicas_text(ids.front(), ids.back(), "the replicas ") +
                       ", had not done " + what + " when the deadline was over. A kernel hangs or is slow: look there" +
                       (last ? "" : ", run with --timing, which waits for each node and names it") + ", or allow more time with --deadline"};
  }

  Program& program_;
  const InputStage::Inputs inputs_;
  const ExecutionOptions& options_;
  const ToolRanges* const tool_ = program_.ranges.tool;
  Watch* watch_ = nullptr;  // watches this step; may be null
  bool prefetched_ = false;
  FlightRecord* record_;
  std::vector<std::uint32_t>& pending_;
  const std::function<void()> others_ = [this] { advance(); };  // advances other collectives during the wait for one
};

template <class>
void execute(Program& program, InputStage::Inputs inputs, const ExecutionOptions& options) {
  for (const auto& patch : program.patches)
    program.pointers[patch.pointer] = const_cast<std::byte*>(inputs[patch.replica][patch.element].data());
  program.words.set_step(options.step);
  ++program.tick;
  Execution{program, inputs, options}.run();
}

}  // namespace replicator::detail
