// SPDX-License-Identifier: Apache-2.0
// DeviceName: a kind of device and an index, such as cpu:3.
#pragma once

#include <string>

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

}  // namespace replicator
