// SPDX-License-Identifier: Apache-2.0
// Placing nodes on the logical devices of a replica.
#pragma once

#include <string>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/graph.hpp>

namespace replicator::detail {

// Nodes made while it lives, and variables declared, are on that logical device. The innermost scope counts. Where nodes
// are never changes a value: passes do not look at it.
class LogicalDeviceScope {
 public:
  // Throws BuildError where the replica has no such device.
  LogicalDeviceScope(Graph& graph, int device, Location where) : LogicalDeviceScope{graph, device} {
    if (device >= 0 && device < graph.logical_devices()) return;
    const int last = graph.logical_devices() - 1;
    throw BuildError{"replica " + std::to_string(graph.replica()) + ": logical_device(" + std::to_string(device) + ") at " + where.text() +
                     " does not exist: a replica has the logical device" + (last == 0 ? " 0 only" : "s 0 to " + std::to_string(last)) +
                     "; ask for more with --logical-devices"};
  }
  // One that another node is on already.
  LogicalDeviceScope(Graph& graph, std::int32_t device) : device_{graph.device_, device} {}

 private:
  ScopedValue<std::int32_t> device_;
};

}  // namespace replicator::detail
