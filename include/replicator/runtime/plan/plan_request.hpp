// SPDX-License-Identifier: Apache-2.0
// PlanRequest: all that a device's program is planned from. Also declares plan().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <replicator/collectives/all_reduce_preference.hpp>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/devices/device_kind.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/handoffs.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/runtime/memory_need.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

// All referenced objects outlive the program.
struct PlanRequest {
  const Resolution& resolution;
  const std::vector<LoweredGraph>& lowered;  // by class
  VariableStore& variables;
  collectives::Communicator& communicator;  // between the corresponding devices of all replicas
  // The same for collectives on values in device memory; null if the devices compute on host memory.
  collectives::Communicator* device_communicator = nullptr;
  std::string through_host = {};       // why values pass through host memory nevertheless; empty if they do not
  Handoffs* handoffs = nullptr;        // between the devices of these replicas; null if there is only one
  int device = 0;                      // the device's index among those of its replicas
  int devices = 1;                     // number of devices of its replicas
  int copy = 0;                        // copy of the mirrored variables, counted on this host
  int first_replica = 0;               // of this host: replica-local variables are counted from here
  int first_resolved = 0;              // the first replica of the resolution
  int replicas_before = 0;             // replicas of the job before those of the resolution, if the job has several resolutions (asynchronous groups)
  std::uint32_t first_collective = 0;  // earlier programs on the same communicator have lower ids
  bool several_hosts = false;          // small results travel to all hosts
  DeviceKind kind = DeviceKind::cpu;   // kind of the device; `index` counts within the kind
  int index = 0;
  collectives::AllReducePreference all_reduce = {};  // algorithm of all_reduces
  MemoryLimit memory_limit = {};
  // Set for replicas of another process, whose work this device repeats in audited steps: their classes, and their
  // replica-local variables, which are counted from the device's first replica.
  std::vector<std::uint32_t> guest_classes = {};
  VariableStore* guests = nullptr;

  // The number of the device's replicas, and the first of them among all. In the functions below `r` counts them from
  // 0.
  int replicas() const { return communicator.blocks().count(communicator.rank()); }
  int begin() const { return replicas_before + communicator.blocks().begin(communicator.rank()); }

  int class_of(int r) const {
    if (guests) return static_cast<int>(guest_classes[static_cast<std::size_t>(r)]);
    return static_cast<int>(resolution.class_of[static_cast<std::size_t>(begin() + r - first_resolved)]);
  }
  // Parts of class c.
  const GraphClass& source(int c) const { return resolution.classes[static_cast<std::size_t>(c)]; }
  const LoweredGraph& lowered_graph(int c) const { return lowered[static_cast<std::size_t>(c)]; }
  const LoweredValue& value(int c, std::uint32_t value) const { return lowered_graph(c).values[value]; }
  const Node& node(int c, const LoweredNode& node) const { return source(c).graph.node(node.node); }

  // A variable of class c's graph. `r` matters only for replica-local variables.
  VariableValue& variable(int c, std::uint32_t variable, int r) const {
    const auto& declaration = source(c).graph.variables()[variable];
    const bool mirrored = declaration.kind == VariableKind::mirrored;
    if (guests && !mirrored) return guests->at(declaration.name, std::max(r, 0));
    return variables.at(declaration.name, mirrored ? copy : begin() + r - first_replica);
  }
};

// Collective: every device of the job calls it at the same time, because collectives allocate together. Throws
// BuildError if the program needs more memory than the limit. It is defined in planner.hpp, which only one file of a
// program must include. It is a template so that this file can be a unit of replicator::compiled.
template <class = void>
Program plan(const PlanRequest& request);

}  // namespace replicator::detail
