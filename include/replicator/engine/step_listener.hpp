// SPDX-License-Identifier: Apache-2.0
// StepListener: the interface for code that is called before and after every step of a host, and when a step fails.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <replicator/engine/placement.hpp>
#include <replicator/replicate/step_driver.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

// A step that is about to run or has just run.
struct StepMoment {
  int ordinal = 0;                                // the number of the step in its Replicator
  std::uint64_t number = 0;                       // how many steps it had done before
  std::span<const std::vector<AnyArray>> inputs;  // by replica of this host
  const Resolution& resolution;
  std::span<Program> programs;  // by device
  VariableStore& variables;
  const Placement& placement;

  // `replica` is a replica of this host, counted over all hosts.
  std::uint32_t local(int replica) const { return static_cast<std::uint32_t>(replica - placement.begin()); }
  const GraphClass& source(int replica) const { return resolution.classes[resolution.class_of[local(replica)]]; }
  int team(int replica) const {
    int team = 0;
    while (placement.first_replica(team) + placement.replicas(team) <= static_cast<int>(local(replica))) ++team;
    return team;
  }
  // The value of a variable as this replica sees it.
  VariableValue& value(const VariableDeclaration& variable, int replica) const {
    return variables.at(variable.name, variable.kind == VariableKind::mirrored ? team(replica) : static_cast<int>(local(replica)));
  }
  // Calls f(ordinal, memory, queue) for each collective result of this replica. The memory is valid until the next
  // step; the device's queue can read it.
  template <class F>
  void for_each_collected(int replica, F f) const {
    const auto first = static_cast<std::size_t>(team(replica) * placement.devices_per_team());
    for (auto& program : programs.subspan(first, static_cast<std::size_t>(placement.devices_per_team())))
      for (const auto& collected : program.collected)
        if (program.replica_ids[static_cast<std::size_t>(collected.replica)] == replica) f(collected.ordinal, collected.data, program.queue);
  }
};

// Called by the thread that runs the steps. An exception ends the step and the Replicator.
class StepListener {
 public:
  StepListener() = default;
  StepListener(const StepListener&) = delete;
  StepListener& operator=(const StepListener&) = delete;
  virtual ~StepListener() = default;

  virtual void before(const StepMoment& moment) = 0;
  // May change the results that the user gets.
  virtual void after(const StepMoment& moment, StepResults& results) = 0;
  virtual void failed(const StepMoment& moment, const std::exception_ptr& error) noexcept = 0;
};

}  // namespace replicator::detail
