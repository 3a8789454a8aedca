// SPDX-License-Identifier: Apache-2.0
// InputStage: brings the elements of a step into device memory. The elements of the next step arrive while the device
// computes this one:
//
//   user's array --host--> a half of pinned memory --copy queue--> place on the device --step's queue--> where the step reads it
//
// A half is free again when its copies have been made. The places are free when the step before has read them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/runtime/host_memory.hpp>
#include <replicator/runtime/queue.hpp>

namespace replicator::detail {

// A component of a replica's element, and its place in the memory of the device.
struct InputPlace {
  std::uint32_t replica = 0;  // counted on this device
  std::uint32_t element = 0;
  std::size_t bytes = 0;
  std::byte* place = nullptr;
};

class InputStage {
 public:
  using Inputs = std::span<const std::vector<AnyArray>>;  // indexed by replica of the device

  InputStage() = default;
  // For a kind of device that has a queue.
  InputStage(const DeviceSupport& support, int index, std::vector<InputPlace> places)
      : places_{std::move(places)}, held_(places_.size()), taken_{support, index}, halves_{{{support, index, places_}, {support, index, places_}}}, copies_{support, index} {}

  const std::vector<InputPlace>& places() const { return places_; }

  // Work that is queued on `queue` from now on finds these inputs in their places.
  void bring(const Queue& queue, Inputs inputs, std::uint64_t step) {
    if (places_.empty()) return;
    if (!holds(inputs, step)) load(inputs, step);
    halves_[now_].copied.precede(queue);
  }
  // All work that reads the places in this step has been queued on `queue`.
  void taken(const Queue& queue) {
    if (!places_.empty()) taken_.record(queue);
  }
  // Call it after taken(): starts to copy the inputs of step `step`. They must not change until that step. Does nothing
  // if their shapes differ, because that step has another program.
  void prefetch(Inputs inputs, std::uint64_t step) {
    if (!places_.empty() && fits(inputs)) load(inputs, step);
  }

 private:
  struct Half {
    Half() = default;
    Half(const DeviceSupport& support, int index, const std::vector<InputPlace>& places) : memory{*support.staging, bytes_of(places)}, copied{support, index} {}
    HostMemory memory;
    Event copied;  // after the copies from it to the device
  };

  static constexpr std::size_t rounded(std::size_t bytes) { return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment; }
  static std::size_t bytes_of(const std::vector<InputPlace>& places) {
    std::size_t bytes = 0;
    for (const auto& place : places) bytes += rounded(place.bytes);
    return bytes;
  }
  static const AnyArray& component(Inputs inputs, const InputPlace& place) { return inputs[place.replica][place.element]; }

  bool holds(Inputs inputs, std::uint64_t step) const {
    if (held_step_ != step) return false;
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (held_[i] != component(inputs, places_[i]).data()) return false;
    return true;
  }
  bool fits(Inputs inputs) const {
    for (const auto& place : places_)
      if (place.replica >= inputs.size() || place.element >= inputs[place.replica].size() || component(inputs, place).size_bytes() != place.bytes) return false;
    return true;
  }
  void load(Inputs inputs, std::uint64_t step) {
    now_ = 1 - now_;
    auto& half = halves_[now_];
    half.copied.await();
    taken_.precede(copies_);
    auto* at = half.memory.data();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const auto& place = places_[i];
      held_[i] = component(inputs, place).data();
      std::memcpy(at, held_[i], place.bytes);
      copies_.copy(place.place, at, place.bytes);
      at += rounded(place.bytes);
    }
    half.copied.record(copies_);
    held_step_ = step;
  }

  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::vector<InputPlace> places_;
  std::vector<const std::byte*> held_;  // by place: the user's memory with the values that are in the place or on their way there
  std::uint64_t held_step_ = none;
  Event taken_;
  std::array<Half, 2> halves_;
  std::size_t now_ = 0;
  Queue copies_;  // declared last: destroyed before the memory from which it copies
};

}  // namespace replicator::detail
