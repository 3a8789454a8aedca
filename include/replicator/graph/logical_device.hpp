// SPDX-License-Identifier: Apache-2.0
// Places nodes on the logical devices of a replica.
#pragma once

#include <string>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/graph.hpp>

namespace replicator::detail {

// While it lives, new nodes and variables are placed on this logical device. The innermost scope counts. Placement never
// changes a value: passes ignore it.
class LogicalDeviceScope {
 public:
  // Throws BuildError where the replica has no such device.
  LogicalDeviceScope(Graph& graph, int device, Location where) : LogicalDeviceScope{graph, device} {
    if (device >= 0 && device < graph.logical_devices()) return;
    const int last = graph.logical_devices() - 1;
    throw BuildError{detail::call_text(graph.replica(), "logical_device(" + std::to_string(device) + ")", where) +
                     " does not exist: a replica has the logical device" + (last == 0 ? " 0 only" : "s 0 to " + std::to_string(last)) +
                     "; ask for more with --logical-devices"};
  }
  // For the device of an existing node; not checked.
  LogicalDeviceScope(Graph& graph, std::int32_t device) : device_{graph.device_, device} {}

 private:
  ScopedValue<std::int32_t> device_;
};

}  // namespace replicator::detail
