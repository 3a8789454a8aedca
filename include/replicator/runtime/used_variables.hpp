// SPDX-License-Identifier: Apache-2.0
// The variables of a program on a device with memory of its own, around each of its steps.
#pragma once

#include <cstddef>
#include <vector>

#include <replicator/runtime/variable_value.hpp>

namespace replicator::detail {

struct UsedVariable {
  VariableValue* value = nullptr;
  std::byte* resident = nullptr;  // where it lies on the device; null where another device of the replica has it: read on the host
  bool changes = false;           // the step assigns it
  std::byte* at() const { return resident ? resident : value->host_memory(); }
};

// Empty where the device computes on the host's memory.
class UsedVariables {
 public:
  UsedVariables() = default;
  explicit UsedVariables(const VariableMemory& memory) : memory_{&memory} {}

  void add(const UsedVariable& variable) {
    for (auto& used : used_)
      if (used.at() == variable.at()) {
        used.changes = used.changes || variable.changes;
        return;
      }
    used_.push_back(variable);
  }
  bool has(const std::byte* address) const {
    for (const auto& used : used_)
      if (used.resident && address >= used.resident && address < used.resident + used.value->bytes()) return true;
    return false;
  }

  // Of the host's memory.
  std::size_t host_bytes() const {
    std::size_t bytes = 0;
    for (const auto& used : used_) bytes += used.value->bytes();
    return bytes;
  }

  // Before a step: all are where the program reads them. Nothing is copied but what another step, or the host, has changed meanwhile.
  void bring() const {
    for (const auto& used : used_)
      if (used.resident) used.value->bring_to(*memory_);
      else used.value->read();
  }
  // Before the first instruction that may write one of them, and when all is done.
  void begin_changes() const {
    for (const auto& used : used_)
      if (used.changes) used.value->begin_change(*memory_);
  }
  void end_changes() const {
    for (const auto& used : used_)
      if (used.changes) used.value->end_change(*memory_);
  }

 private:
  const VariableMemory* memory_ = nullptr;
  std::vector<UsedVariable> used_;
};

}  // namespace replicator::detail
