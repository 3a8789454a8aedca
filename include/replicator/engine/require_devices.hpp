// SPDX-License-Identifier: Apache-2.0
// Checks that the devices of a deployment exist.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <replicator/core/error.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/replicate/deployment.hpp>

namespace replicator::detail {

// Throws BuildError for a kind of device that the program was built without, and for devices of different kinds. Throws
// DeviceError for missing devices.
inline void require_devices(std::span<const DeviceName> devices) {
  for (const auto& device : devices) {
    const auto* support = device_support[static_cast<std::size_t>(device.kind)].load();
    if (!support) {
      const std::string cure = device.kind == DeviceKind::cuda
                                   ? "compile it with nvcc and include <replicator/cuda/kernels.cuh>, or use cpu:0"
                                   : "include <replicator/replicator.hpp>; with replicator::compiled link its objects themselves, since an archive leaves out those that only register kernels";
      throw BuildError{"the device " + device.text() + " was asked for, but this program was built without " + std::string{name_of(device.kind)} + ": " + cure};
    }
    support->require(device.index);
    if (device.kind != devices[0].kind)
      throw BuildError{"the devices " + devices[0].text() + " and " + device.text() + " are of different kinds: use one kind for a job"};
  }
}

}  // namespace replicator::detail
