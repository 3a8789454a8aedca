// SPDX-License-Identifier: Apache-2.0
// How a device's program is run once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include <replicator/runtime/flight_record.hpp>
#include <replicator/runtime/input_stage.hpp>
#include <replicator/runtime/watch.hpp>

namespace replicator::detail {

// By so much longer than the deadline waits who waits for others only: whose own device hangs is the first to say so, and names it.
inline constexpr std::chrono::seconds others_first{1};

struct ExecutionOptions {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  InputStage::Inputs next = {};         // of step + 1, where they are known: they stay as they are until it has begun
  std::chrono::nanoseconds deadline{};  // for each wait; zero waits without end
  std::chrono::nanoseconds late{};      // a wait of so long is told, once; zero: never
  std::function<void()> tell_late{};    // given where `late` and `record` are
  Watch* watch = nullptr;               // is told of every instruction
  FlightRecord* record = nullptr;       // of the device: says where it stands
  std::uint32_t compiled = 0;           // the program's name there
  bool capture = true;                  // stretches are captured and replayed, where the device can and nobody watches
};

}  // namespace replicator::detail
