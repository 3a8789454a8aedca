// SPDX-License-Identifier: Apache-2.0
// The CPU as a kind of device. cpu:i is a logical device: any index is there.
#pragma once

#include <replicator/core/device_support.hpp>

namespace replicator::cpu {

inline constexpr DeviceSupport support{[](int) {}};

inline const bool device_registered = [] {
  device_support[static_cast<std::size_t>(DeviceKind::cpu)].store(&support);
  return true;
}();

}  // namespace replicator::cpu
