// SPDX-License-Identifier: Apache-2.0
// Describes the library that a kind of device runs kernels of, beside our own. Headers that use a library store the description in a slot.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include <replicator/devices/device_kind.hpp>

namespace replicator::detail {

// Describes everything about a library that decides bits: name, version, and by what it chooses its kernels on this machine.
using DescribeKernelLibrary = std::string (*)();

// The slots of the kinds. Constant-initialised; storing twice is harmless.
inline constinit std::atomic<DescribeKernelLibrary> kernel_library_slot[device_kinds]{};

// For example "oneDNN 2.6.3 (...) for Intel AVX-512 with ...", or "none" where the program has no such library for the kind.
inline std::string kernel_library(DeviceKind kind) {
  const auto describe = kernel_library_slot[static_cast<std::size_t>(kind)].load();
  return describe ? describe() : "none";
}

}  // namespace replicator::detail
