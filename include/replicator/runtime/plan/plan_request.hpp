// SPDX-License-Identifier: Apache-2.0
// What a device's program is planned from, and plan().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <replicator/collectives/algorithms/all_reduces.hpp>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/devices/device_kind.hpp>
#include <replicator/resolve/resolve.hpp>
#include <replicator/runtime/handoffs.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/runtime/memory_plan.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

// Everything outlives the program.
struct PlanRequest {
  const Resolution& resolution;
  const std::vector<LoweredGraph>& lowered;  // by class
  VariableStore& variables;
  collectives::Communicator& communicator;  // between these devices of all replicas
  // Between the same, for collectives of values in the memory of devices that have their own; null where they compute on the host's.
  collectives::Communicator* device_communicator = nullptr;
  std::string through_host = {};       // why values pass the host's memory all the same; empty where they do not
  Handoffs* handoffs = nullptr;        // between the devices of these replicas; null where they have one
  int device = 0;                      // which of the devices of its replicas this is,
  int devices = 1;                     // and how many they have
  int copy = 0;                        // of mirrored variables: counted on this host
  int first_replica = 0;               // of this host: replica-local variables are counted from here
  int replicas_before = 0;             // of the job, in front of those of the communicator and of the resolution, where it has several of these
  std::uint32_t first_collective = 0;  // ids of earlier programs on the same communicator lie below
  bool several_hosts = false;          // then small results travel to all of them
  DeviceKind kind = DeviceKind::cpu;   // of the device, and its index among those of the kind
  int index = 0;
  collectives::AllReducePreference all_reduce = {};  // how all_reduces are done
  MemoryLimit memory_limit = {};

  // The device's replicas, and which of them all the first one is. Below, `r` counts them from 0.
  int replicas() const { return communicator.blocks().count(communicator.rank()); }
  int begin() const { return replicas_before + communicator.blocks().begin(communicator.rank()); }

  int class_of(int r) const {
    return static_cast<int>(resolution.class_of[static_cast<std::size_t>(begin() - replicas_before + r - first_replica)]);
  }
  // Of class c.
  const GraphClass& source(int c) const { return resolution.classes[static_cast<std::size_t>(c)]; }
  const LoweredGraph& lowered_graph(int c) const { return lowered[static_cast<std::size_t>(c)]; }
  const LoweredValue& value(int c, std::uint32_t value) const { return lowered_graph(c).values[value]; }
  const Node& node(int c, const LoweredNode& node) const { return source(c).graph.node(node.node); }

  // A variable of class c's graph; r counts for replica-local ones only.
  VariableValue& variable(int c, std::uint32_t variable, int r) const {
    const auto& declaration = source(c).graph.variables()[variable];
    const bool mirrored = declaration.kind == VariableKind::mirrored;
    return variables.at(declaration.name, mirrored ? copy : begin() + r - first_replica);
  }
};

// Collective: every device of the job calls it at the same time, since collectives allocate together. Throws BuildError where
// the program needs more memory than the limit. Defined in planner.hpp, which only one file of a program has to include: a template,
// so that this file can be a unit of replicator::compiled.
template <class = void>
Program plan(const PlanRequest& request);

}  // namespace replicator::detail
