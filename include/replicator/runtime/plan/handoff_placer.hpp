// SPDX-License-Identifier: Apache-2.0
// HandoffPlacer: places the values that a device's program gives to the other devices of its replicas, and those it
// takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <replicator/runtime/handoffs.hpp>
#include <replicator/runtime/plan/program_builder.hpp>

namespace replicator::detail {

// **All devices must follow one order**, or they could wait for each other in a circle:
// - by segment;
// - within a segment first the results of collectives, then replica by replica;
// - uniform nodes with the first replica of their graph;
// - within a replica in the order of the graph.
//
// A node's inputs come before it in this order, so the device that is least advanced never waits for another device's
// value. Collectives are started before the segment that waits for them.
class HandoffPlacer {
 public:
  // `handoffs`: null if one device runs all of a replica; then nothing crosses.
  HandoffPlacer(Handoffs* handoffs, int device, int devices, ProgramBuilder& builder)
      : handoffs_{handoffs}, device_{device}, devices_{devices}, builder_{builder} {
    builder.program().handoffs = handoffs;
  }

  // The buffer holds the value. On the host the kernel that makes the value writes it directly to the place where
  // others read it.
  void give(const Handoffs::Key& key, std::uint32_t buffer, std::size_t bytes) {
    const auto place = handoffs_->find(key);
    auto& memory = builder_.memory(buffer);
    if (builder_.support().runs_on_host() && memory.in_arena()) memory.fixed = handoffs_->data(place);
    else builder_.copy(buffer, builder_.fixed_buffer(handoffs_->data(place), bytes), bytes);
    append(Instruction::Kind::give, place);
  }
  // The buffer that holds another device's value from here on.
  std::uint32_t take(const Handoffs::Key& key, std::size_t bytes) {
    const auto place = handoffs_->find(key);
    append(Instruction::Kind::take, place);
    return builder_.fixed_buffer(handoffs_->data(place), bytes);
  }
  // After this point all devices of the replicas have come this far.
  void meet() {
    if (!handoffs_) return;
    append(Instruction::Kind::give, Handoffs::end_of(device_));
    for (int other = 0; other < devices_; ++other)
      if (other != device_) append(Instruction::Kind::take, Handoffs::end_of(other));
  }

 private:
  void append(Instruction::Kind kind, std::uint32_t place) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.place = place;
    builder_.append(instruction, {});
  }

  Handoffs* handoffs_;
  int device_;
  int devices_;
  ProgramBuilder& builder_;
};

}  // namespace replicator::detail
