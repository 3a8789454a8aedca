// SPDX-License-Identifier: Apache-2.0
// What a kind of device must offer to run programs: a slot that the headers of the kind fill.
#pragma once

#include <atomic>

#include <replicator/core/device_kind.hpp>

namespace replicator {

struct DeviceSupport {
  // Throws DeviceError where device `index` cannot be used, saying what is missing.
  void (*require)(int index) = nullptr;
};

// Constant-initialised; storing twice is harmless.
inline constinit std::atomic<const DeviceSupport*> device_support[device_kinds]{};

}  // namespace replicator
