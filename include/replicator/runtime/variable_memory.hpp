// SPDX-License-Identifier: Apache-2.0
// VariableMemory: the memory of variables on a device with its own memory, and the queue that copies them between
// steps.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include <replicator/devices/device_kind.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/runtime/arena.hpp>
#include <replicator/runtime/queue.hpp>

namespace replicator::detail {

class VariableMemory {
 public:
  VariableMemory(DeviceKind kind, int index) : kind_{kind}, index_{index}, queue_{support_of(kind), index} {}
  VariableMemory(const VariableMemory&) = delete;
  VariableMemory& operator=(const VariableMemory&) = delete;

  bool is(DeviceKind kind, int index) const { return kind_ == kind && index_ == index; }
  std::string text() const { return std::string{name_of(kind_)} + ":" + std::to_string(index_); }
  // The memory never moves. Throws DeviceError if there is not enough.
  std::byte* allocate(std::size_t bytes) { return blocks_.emplace_back(support_of(kind_), index_, bytes).data(); }
  // Copies between host and device. Returns when the copy is done.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::lock_guard lock{mutex_};
    queue_.enter();
    queue_.copy(to, from, bytes);
    queue_.synchronise();
  }

 private:
  DeviceKind kind_;
  int index_;
  std::mutex mutex_;  // devices of a team may ask for each other's variables
  std::vector<Arena> blocks_;
  Queue queue_;
};

}  // namespace replicator::detail
