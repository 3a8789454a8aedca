// SPDX-License-Identifier: Apache-2.0
// The kinds of devices, and their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace replicator {

enum class DeviceKind : std::uint8_t {
  cpu,
  cuda
};                                              // the word before the colon in --devices
inline constexpr std::size_t device_kinds = 2;  // how many kinds there are

constexpr std::string_view name_of(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }  // as --devices writes it

}  // namespace replicator
