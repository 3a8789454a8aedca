// SPDX-License-Identifier: Apache-2.0
// The limit of the memory that a step may need on each device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <replicator/devices/device_support.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/memory_need.hpp>

namespace replicator::detail {

// The limit of a device of this process: the requested one, or an equal part of the memory that devices share. All CPU
// devices share the host's memory; the parts of a GPU share the GPU's.
inline MemoryLimit memory_limit(const Deployment& deployment, std::size_t device) {
  if (deployment.memory_limit > 0) {
    const auto bytes = static_cast<std::size_t>(deployment.memory_limit);
    return {bytes, "--memory-limit allows " + text_of_bytes(bytes)};
  }
  const auto& name = deployment.devices[device];
  const auto& support = support_of(name.kind);
  const std::size_t all = support.memory ? support.memory(name.index) : 0;
  if (all == 0) return {};
  std::size_t sharing = 0;
  for (const auto& other : deployment.devices) sharing += other.kind == name.kind && (support.runs_on_host() || other.index == name.index);
  return {all / sharing, text_of_bytes(all / sharing) + (sharing > 1 ? " is its share of what is there" : " is all that is there")};
}

// Throws BuildError, before any variable is allocated, if the variables of a step alone exceed the limit of a device.
// Counts each variable once.
inline void require_room_for_variables(const Resolution& resolution, const Deployment& deployment) {
  std::map<std::int32_t, MemoryNeed> plans;  // by logical device
  std::set<std::string_view> counted;
  for (const auto& one : resolution.classes)
    for (const auto& variable : one.graph.variables())
      if (counted.insert(variable.name).second) plans[variable.device].add(owner_of(variable));
  for (const auto& [device, plan] : plans) require_room(plan, deployment.devices[0].text(), memory_limit(deployment, 0));
}

}  // namespace replicator::detail
