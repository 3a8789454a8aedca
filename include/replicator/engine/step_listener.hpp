// SPDX-License-Identifier: Apache-2.0
// Who is told of a host's steps: before one begins, and when it is done or has failed.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <replicator/engine/placement.hpp>
#include <replicator/replicate/step_driver.hpp>
#include <replicator/resolve/resolve.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

// A step about to be done, or just done.
struct StepMoment {
  int ordinal = 0;                                // which step of the Replicator
  std::uint64_t number = 0;                       // its steps done before
  std::span<const std::vector<AnyArray>> inputs;  // by replica of this host
  const Resolution& resolution;
  std::span<Program> programs;  // by device
  VariableStore& variables;
  const Placement& placement;

  // Of a replica of this host, counted over all hosts.
  std::uint32_t local(int replica) const { return static_cast<std::uint32_t>(replica - placement.begin()); }
  const GraphClass& source(int replica) const { return resolution.classes[resolution.class_of[local(replica)]]; }
  int team(int replica) const {
    int team = 0;
    while (placement.first_replica(team) + placement.replicas(team) <= static_cast<int>(local(replica))) ++team;
    return team;
  }
  // Its view of a variable.
  VariableValue& value(const VariableDeclaration& variable, int replica) const {
    return variables.at(variable.name, variable.kind == VariableKind::mirrored ? team(replica) : static_cast<int>(local(replica)));
  }
  // f(ordinal, memory, queue) for what each collective gives it; there until the next step, in memory that the device's queue reads.
  template <class F>
  void for_each_collected(int replica, F f) const {
    const auto first = static_cast<std::size_t>(team(replica) * placement.devices_per_team());
    for (auto& program : programs.subspan(first, static_cast<std::size_t>(placement.devices_per_team())))
      for (const auto& collected : program.collected)
        if (program.replica_ids[static_cast<std::size_t>(collected.replica)] == replica) f(collected.ordinal, collected.data, program.queue);
  }
};

// Called by the thread that runs the steps. What it throws ends the step, and the Replicator with it.
class StepListener {
 public:
  StepListener() = default;
  StepListener(const StepListener&) = delete;
  StepListener& operator=(const StepListener&) = delete;
  virtual ~StepListener() = default;

  virtual void before(const StepMoment& moment) = 0;
  // May change what the user is given.
  virtual void after(const StepMoment& moment, StepResults& results) = 0;
  virtual void failed(const StepMoment& moment, const std::exception_ptr& error) noexcept = 0;
};

}  // namespace replicator::detail
