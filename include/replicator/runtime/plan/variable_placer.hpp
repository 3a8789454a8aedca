// SPDX-License-Identifier: Apache-2.0
// VariablePlacer: the memory in which a device's program finds the variables of its replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/graph/variable.hpp>
#include <replicator/runtime/plan/plan_request.hpp>
#include <replicator/runtime/plan/program_builder.hpp>
#include <replicator/runtime/used_variables.hpp>
#include <replicator/runtime/variable_value.hpp>

namespace replicator::detail {

// If kernels run on the host, variables are in host memory. A device with its own memory holds the variables that are
// placed on it, for all programs that use them. It reads variables of the replica's other devices on the host.
class VariablePlacer {
 public:
  VariablePlacer(const PlanRequest& request, ProgramBuilder& builder) : request_{request}, builder_{builder} {}

  // For a device with its own memory, before all other calls. Throws DeviceError if the device has not enough memory.
  void make_room() {
    std::vector<VariableValue*> own;
    for (int r = 0; r < request_.replicas(); ++r) {
      const int c = request_.class_of(r);
      const auto& declared = request_.source(c).graph.variables();
      for (std::uint32_t v = 0; v < declared.size(); ++v)
        if (declared[v].device == request_.device) own.push_back(&request_.variable(c, v, r));
    }
    memory_ = &request_.variables.reside(own, request_.kind, request_.index);
    builder_.program().variables = UsedVariables{*memory_};
  }
  // The buffer of a variable's value at the start of the step; for class c's graph. r matters only for replica-local
  // variables.
  std::uint32_t buffer(int c, std::uint32_t variable, int r) {
    const auto used = use(c, variable, r);
    const auto buffer = builder_.fixed_buffer(used.at(), used.value->bytes());
    auto& memory = builder_.memory(buffer);
    memory.variable = true;
    memory.on_device = used.resident != nullptr;
    return buffer;
  }
  // The address to which the variable is assigned.
  std::byte* assigned(int c, std::uint32_t variable, int r) { return use(c, variable, r, true).at(); }

 private:
  UsedVariable use(int c, std::uint32_t variable, int r, bool changes = false) {
    UsedVariable used{&request_.variable(c, variable, r), nullptr, changes};
    if (!memory_) return used;
    if (request_.source(c).graph.variables()[variable].device == request_.device) used.resident = used.value->resident(*memory_);
    builder_.program().variables.add(used);
    return used;
  }

  const PlanRequest& request_;
  ProgramBuilder& builder_;
  VariableMemory* memory_ = nullptr;  // null: host memory
};

}  // namespace replicator::detail
