// SPDX-License-Identifier: Apache-2.0
// What kernels of a device with memory of its own could not take: noted there, for they cannot throw, and looked at by the host where it waits
// for the device anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include <replicator/devices/device_support.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/runtime/host_memory.hpp>
#include <replicator/runtime/queue.hpp>

namespace replicator::detail {

class Refusals {
 public:
  struct Found {
    std::uint32_t instruction;
    Refusal what;
  };

  // One more instruction that may refuse.
  void add(std::uint32_t instruction) { instructions_.push_back(instruction); }
  const std::vector<std::uint32_t>& instructions() const { return instructions_; }
  std::size_t bytes() const { return instructions_.size() * sizeof(Refusal); }

  // Their words, in their order, lie at `words`, in the device's memory. Nothing has been refused: once is enough, for a step that refuses is the
  // last one of its program.
  void place(const DeviceSupport& support, const Queue& queue, std::byte* words) {
    words_ = words;
    on_host_ = HostMemory{*support.staging, bytes()};
    const std::vector<Refusal> nothing(instructions_.size());
    std::memcpy(on_host_.data(), nothing.data(), bytes());
    queue.copy(words_, on_host_.data(), bytes());
    queue.synchronise();
  }

  // When all is done that the queue was given until now, first() knows of it.
  void bring(const Queue& queue) const {
    if (bytes()) queue.copy(on_host_.data(), words_, bytes());
  }
  // What the first of the instructions that refused something did.
  std::optional<Found> first() const {
    for (std::size_t i = 0; i < instructions_.size(); ++i) {
      Refusal refusal;
      std::memcpy(&refusal, on_host_.data() + i * sizeof refusal, sizeof refusal);
      if (refusal.number != Refusal::none) return Found{instructions_[i], refusal};
    }
    return {};
  }

 private:
  std::vector<std::uint32_t> instructions_;
  std::byte* words_ = nullptr;
  HostMemory on_host_;
};

}  // namespace replicator::detail
