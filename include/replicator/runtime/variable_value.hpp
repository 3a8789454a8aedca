// SPDX-License-Identifier: Apache-2.0
// VariableValue: the value of a variable, in host memory and in the memory of each device that computes with it. Steps
// change it on a device. A reader elsewhere then triggers a copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/runtime/variable_memory.hpp>

namespace replicator::detail {

class VariableValue {
 public:
  // `array`: its host memory, with the first value.
  VariableValue(std::string name, AnyArray array) : name_{std::move(name)}, host_{std::move(array)} {}
  VariableValue(const VariableValue&) = delete;
  VariableValue& operator=(const VariableValue&) = delete;

  // The present value, on the host. Throws DeviceError if a device cannot copy it, or if a step has failed while it
  // changed the value.
  const AnyArray& read() const {
    const std::lock_guard lock{mutex_};
    bring_to_host();
    return host_;
  }
  // Host memory for a new value. **The caller must write all of it before the next read.**
  AnyArray& overwrite() {
    const std::lock_guard lock{mutex_};
    for (auto& resident : residents_) resident.current = false;
    on_host_ = true;
    changing_ = nullptr;
    return host_;
  }
  // Its address on the host, where the value may be out of date.
  std::byte* host_memory() const { return host_.data(); }
  std::size_t bytes() const { return host_.size_bytes(); }

  // Gives it memory on a device too, from `at` on.
  void reside(VariableMemory& memory, std::byte* at) {
    const std::lock_guard lock{mutex_};
    residents_.push_back({&memory, at, false});
  }
  // Its address on that device; null if it has none.
  std::byte* resident(const VariableMemory& memory) const {
    const std::lock_guard lock{mutex_};
    for (const auto& resident : residents_)
      if (resident.memory == &memory) return resident.at;
    return nullptr;
  }
  // Calls f(address) for each device.
  template <class F>
  void for_each_resident(F f) const {
    const std::lock_guard lock{mutex_};
    for (const auto& resident : residents_) f(resident.at);
  }

  // Brings the present value to that device. Throws as read() does.
  void bring_to(const VariableMemory& memory) {
    const std::lock_guard lock{mutex_};
    require_whole();
    auto& resident = on(memory);
    if (resident.current) return;
    bring_to_host();
    resident.memory->copy(resident.at, host_.data(), host_.size_bytes());
    resident.current = true;
  }
  // A step changes the value on that device between these two calls. Nothing can read it meanwhile.
  void begin_change(const VariableMemory& memory) {
    const std::lock_guard lock{mutex_};
    changing_ = &memory;
  }
  void end_change(const VariableMemory& memory) {
    const std::lock_guard lock{mutex_};
    changing_ = nullptr;
    on_host_ = false;
    for (auto& resident : residents_) resident.current = resident.memory == &memory;
  }

 private:
  struct Resident {
    VariableMemory* memory;
    std::byte* at;
    bool current;  // the device has the present value
  };

  Resident& on(const VariableMemory& memory) {
    for (auto& resident : residents_)
      if (resident.memory == &memory) return resident;
    throw BuildError{"the variable \"" + name_ + "\" was asked for on " + memory.text() + ", where it does not lie"};
  }
  void require_whole() const {
    if (changing_)
      throw DeviceError{"the value of the variable \"" + name_ + "\" was asked for, but it is lost: a step failed on " + changing_->text() +
                        " while it changed it. Go on from a checkpoint"};
  }
  void bring_to_host() const {
    require_whole();
    if (on_host_) return;
    const auto& newest = *std::find_if(residents_.begin(), residents_.end(), [](const Resident& resident) { return resident.current; });
    newest.memory->copy(host_.data(), newest.at, host_.size_bytes());
    on_host_ = true;
  }

  std::string name_;
  mutable std::mutex mutex_;
  mutable AnyArray host_;
  mutable bool on_host_ = true;  // the host has the present value
  std::vector<Resident> residents_;
  const VariableMemory* changing_ = nullptr;  // the device on which a step is writing it; null: none
};

}  // namespace replicator::detail
