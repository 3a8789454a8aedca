// SPDX-License-Identifier: Apache-2.0
// UsedVariables: the variables of a program on a device with its own memory, brought to the device before each step.
#pragma once

#include <cstddef>
#include <vector>

#include <replicator/runtime/variable_value.hpp>

namespace replicator::detail {

struct UsedVariable {
  VariableValue* value = nullptr;
  std::byte* resident = nullptr;  // address on the device; null if another device of the replica holds it: then it is read on the host
  bool changes = false;           // the step assigns it
  std::byte* at() const { return resident ? resident : value->host_memory(); }
};

// Empty if the device computes on host memory.
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

  // Bytes in host memory.
  std::size_t host_bytes() const {
    std::size_t bytes = 0;
    for (const auto& used : used_) bytes += used.value->bytes();
    return bytes;
  }

  // Called before a step: brings all variables to where the program reads them. Copies only those that another step or
  // the host has changed since.
  void bring() const {
    for (const auto& used : used_)
      if (used.resident) used.value->bring_to(*memory_);
      else used.value->read();
  }
  // Called before the first instruction that may write a variable, and after the last.
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
