// SPDX-License-Identifier: Apache-2.0
// Refusals: the values that kernels on a device have refused. Such kernels cannot throw, so they write a word in device
// memory. The host reads it where it waits for the device anyway.
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

  // Adds an instruction that may refuse.
  void add(std::uint32_t instruction) { instructions_.push_back(instruction); }
  const std::vector<std::uint32_t>& instructions() const { return instructions_; }
  std::size_t bytes() const { return instructions_.size() * sizeof(Refusal); }

  // Sets where the words are: at `words`, in device memory, in the order of the instructions. Clears them. Once is
  // enough, because a step that refuses is the last one of its program.
  void place(const DeviceSupport& support, const Queue& queue, std::byte* words) {
    words_ = words;
    on_host_ = HostMemory{*support.staging, bytes()};
    const std::vector<Refusal> nothing(instructions_.size());
    std::memcpy(on_host_.data(), nothing.data(), bytes());
    queue.copy(words_, on_host_.data(), bytes());
    queue.synchronise();
  }

  // Queues a copy to the host. When the queue has done it, first() can read the words.
  void bring(const Queue& queue) const {
    if (bytes()) queue.copy(on_host_.data(), words_, bytes());
  }
  // The first instruction that has refused a value, and its word.
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
