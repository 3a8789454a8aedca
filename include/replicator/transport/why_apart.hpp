// SPDX-License-Identifier: Apache-2.0
// Whether the devices of one process reach each other's memory.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <replicator/devices/device_support.hpp>

namespace replicator::detail::transport {

// Enables access between the devices of these indices, given by rank, and tests it. Returns why they do not reach each
// other's memory or read it wrongly, or an empty string. One device may be several ranks. Throws DeviceError where a device
// does not come back.
template <class = void>
std::string why_apart(const DeviceSupport& support, std::string_view kind, std::span<const int> indices);

}  // namespace replicator::detail::transport
