// SPDX-License-Identifier: Apache-2.0
// Deployments and errors for the tests of replication.
#pragma once

#include <cstdint>
#include <optional>

#include <replicator/replicate/deployment.hpp>

#include "../support/errors.hpp"

namespace replicator::test {

using namespace replicator::detail;

// So many devices of a kind in this process.
inline Deployment on(DeviceKind kind, int replicas, int devices, std::uint64_t seed = 0) {
  Deployment result;
  result.replicas = replicas;
  result.seed = seed;
  result.input_threads = 1;
  result.devices.clear();
  for (int device = 0; device < devices; ++device) result.devices.push_back({kind, device});
  return result;
}
// Logical CPU devices.
inline Deployment on_devices(int replicas, int devices, std::uint64_t seed = 17) { return on(DeviceKind::cpu, replicas, devices, seed); }
inline Deployment asynchronous(int replicas, int devices, std::optional<std::int64_t> staleness = {}, int group = 1) {
  auto result = on_devices(replicas, devices);
  result.regime = Regime::asynchronous;
  result.staleness = staleness;
  result.sync_group = group;
  return result;
}

}  // namespace replicator::test
