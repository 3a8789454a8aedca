// SPDX-License-Identifier: Apache-2.0
// Deployments and errors as the tests of replication need them.
#pragma once

#include <replicator/replicate/deployment.hpp>

#include "../support/errors.hpp"

namespace replicator::test {

// So many logical CPU devices in this process.
inline Deployment on_devices(int replicas, int devices, std::uint64_t seed = 17) {
  Deployment result;
  result.replicas = replicas;
  result.seed = seed;
  result.input_threads = 1;
  result.devices.clear();
  for (int device = 0; device < devices; ++device) result.devices.push_back({DeviceKind::cpu, device});
  return result;
}

}  // namespace replicator::test
