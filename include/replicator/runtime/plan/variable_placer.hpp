// SPDX-License-Identifier: Apache-2.0
// In which memory a device's program finds the variables of its replicas.
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

// Where kernels run on the host it is the host's. A device with memory of its own has those that are placed on it, for all programs that use
// them; what others of the replica have it reads on the host.
class VariablePlacer {
 public:
  VariablePlacer(const PlanRequest& request, ProgramBuilder& builder) : request_{request}, builder_{builder} {}

  // For a device with memory of its own, before all else. Throws DeviceError where it has no room.
  void make_room() {
    std::vector<VariableValue*> own;
    for (int r = 0; r < request_.replicas(); ++r) {
      const int c = request_.class_of(r);
      const auto declared = request_.source(c).graph.variables();
      for (std::uint32_t v = 0; v < declared.size(); ++v)
        if (declared[v].device == request_.device) own.push_back(&request_.variable(c, v, r));
    }
    memory_ = &request_.variables.reside(own, request_.kind, request_.index);
    builder_.program().variables = UsedVariables{*memory_};
  }
  // Its value at the step's start, of class c's graph; r counts for replica-local ones only.
  std::uint32_t buffer(int c, std::uint32_t variable, int r) {
    const auto used = use(c, variable, r);
    const auto buffer = builder_.fixed_buffer(used.at(), used.value->bytes());
    auto& memory = builder_.memory(buffer);
    memory.variable = true;
    memory.on_device = used.resident != nullptr;
    return buffer;
  }
  // Where it is assigned.
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
  VariableMemory* memory_ = nullptr;  // null: the host's
};

}  // namespace replicator::detail
