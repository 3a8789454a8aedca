// SPDX-License-Identifier: Apache-2.0
// StepWords: the words in host memory that kernels read in each step: the step's number and the ids of the device's
// replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <replicator/devices/device_support.hpp>
#include <replicator/runtime/host_memory.hpp>

namespace replicator::detail {

class StepWords {
 public:
  StepWords() = default;
  // `staging`: for a device that copies the words; null if it computes on host memory.
  StepWords(const StagingSupport* staging, std::span<const std::int32_t> replica_ids) : memory_{staging, sizeof(std::uint64_t) + replica_ids.size_bytes()} {
    set_step(0);
    std::memcpy(memory_.data() + sizeof(std::uint64_t), replica_ids.data(), replica_ids.size_bytes());
  }

  void set_step(std::uint64_t number) const { std::memcpy(memory_.data(), &number, sizeof number); }
  std::byte* step() const { return memory_.data(); }
  // The id of the device's replica r.
  std::byte* replica_id(std::size_t r) const { return memory_.data() + sizeof(std::uint64_t) + r * sizeof(std::int32_t); }

 private:
  HostMemory memory_;
};

}  // namespace replicator::detail
