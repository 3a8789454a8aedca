// SPDX-License-Identifier: Apache-2.0
// A value of a variable. It lies in the memory of the host, and in that of each device with memory of its own that computes with it: steps
// change it there, and whoever asks elsewhere has it copied then.
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
  // `array`: the host's memory of it, and the first value.
  VariableValue(std::string name, AnyArray array) : name_{std::move(name)}, host_{std::move(array)} {}
  VariableValue(const VariableValue&) = delete;
  VariableValue& operator=(const VariableValue&) = delete;

  // On the host, as it is now. Throws DeviceError where a device cannot give it, and where a step has failed while it changed it.
  const AnyArray& read() const {
    const std::lock_guard lock{mutex_};
    bring_to_host();
    return host_;
  }
  // On the host, all of it to be written before anybody else asks.
  AnyArray& overwrite() {
    const std::lock_guard lock{mutex_};
    for (auto& resident : residents_) resident.current = false;
    on_host_ = true;
    changing_ = nullptr;
    return host_;
  }
  // Where it lies on the host, whether it is there as it is now or not.
  std::byte* host_memory() const { return host_.data(); }
  std::size_t bytes() const { return host_.size_bytes(); }

  // Lets it lie on a device too, from `at` on.
  void reside(VariableMemory& memory, std::byte* at) {
    const std::lock_guard lock{mutex_};
    residents_.push_back({&memory, at, false});
  }
  // Where it lies there; null where it does not.
  std::byte* resident(const VariableMemory& memory) const {
    const std::lock_guard lock{mutex_};
    for (const auto& resident : residents_)
      if (resident.memory == &memory) return resident.at;
    return nullptr;
  }
  // f(address) for each device.
  template <class F>
  void for_each_resident(F f) const {
    const std::lock_guard lock{mutex_};
    for (const auto& resident : residents_) f(resident.at);
  }

  // From here on it lies there as it is now. Throws as read() does.
  void bring_to(const VariableMemory& memory) {
    const std::lock_guard lock{mutex_};
    require_whole();
    auto& resident = on(memory);
    if (resident.current) return;
    bring_to_host();
    resident.memory->copy(resident.at, host_.data(), host_.size_bytes());
    resident.current = true;
  }
  // Between these two it is changed there, and nobody can have it.
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
    bool current;  // the value is there as it is now
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
  mutable bool on_host_ = true;  // the value is there as it is now
  std::vector<Resident> residents_;
  const VariableMemory* changing_ = nullptr;  // where a step is writing it
};

}  // namespace replicator::detail
