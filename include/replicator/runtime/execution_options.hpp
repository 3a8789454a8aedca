// SPDX-License-Identifier: Apache-2.0
// ExecutionOptions: the options with which a device's program is run once, and execute(), which runs it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include <replicator/runtime/flight_record.hpp>
#include <replicator/runtime/input_stage.hpp>
#include <replicator/runtime/watch.hpp>

namespace replicator::detail {

struct Program;

// A device that only waits for others waits this much longer than the deadline. So a device that hangs by itself
// reports first, with its own name.
inline constexpr std::chrono::seconds others_first{1};

struct ExecutionOptions {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  InputStage::Inputs next = {};         // inputs of step + 1 if they are known; they must not change until that step has begun
  std::chrono::nanoseconds deadline{};  // of each wait; zero: no limit
  std::chrono::nanoseconds late{};      // a wait of this length is reported, once; zero: never
  std::function<void()> tell_late{};    // set if `late` and `record` are
  Watch* watch = nullptr;               // is notified of every instruction
  FlightRecord* record = nullptr;       // the flight record of the device
  std::uint32_t compiled = 0;           // the program's number in the flight record
  bool rehearsal = false;               // computes the step without its effects: no variable changes, and operations with an effect do nothing
  bool capture = true;                  // captures and replays stretches, if the device can and there is no watch
};

// `inputs[r]`: the arrays of the device's replica r. Throws CommunicationError at a deadline or when the job is
// aborted. Throws DataError with the user's line if a kernel refuses a value, such as an index out of range.
// It is defined in execute.hpp, which only one file of a program must include. It is a template so that this file can be
// a unit of replicator::compiled.
template <class = void>
void execute(Program& program, InputStage::Inputs inputs, const ExecutionOptions& options);

}  // namespace replicator::detail
