// SPDX-License-Identifier: Apache-2.0
// DeviceName: a kind of device and an index, such as cpu:3.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <replicator/devices/device_kind.hpp>

namespace replicator {

struct DeviceName {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  int part = 0;  // of a GPU that is used as several devices

  // "cpu:3", "cuda:0", "cuda:0/2"
  std::string text() const { return std::string{name_of(kind)} + ":" + std::to_string(index) + (part ? "/" + std::to_string(part) : ""); }
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// The devices that a text names: "cpu:0", "cpu:0-3", "cuda:0,cuda:1", "cuda:0x4" (four devices on one GPU). For
// Deployment::devices: rp::Deployment{.replicas = 4, .devices = rp::parse_devices("cpu:0-3")}. Throws BuildError for other texts,
// for a device that is named twice, and for more than 4,096 devices.
template <class = void>
std::vector<DeviceName> parse_devices(std::string_view text);  // the code is in replicate/parse_devices.hpp

}  // namespace replicator
