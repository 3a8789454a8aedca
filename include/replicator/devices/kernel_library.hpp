// SPDX-License-Identifier: Apache-2.0
// The library whose kernels a kind of device runs beside ours: a slot that the headers which use one fill.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include <replicator/devices/device_kind.hpp>

namespace replicator::detail {

// Says all of a library that decides bits: name, version, and by what it chooses its kernels on this machine.
using DescribeKernelLibrary = std::string (*)();

// Constant-initialised; storing twice is harmless.
inline constinit std::atomic<DescribeKernelLibrary> kernel_library_slot[device_kinds]{};

// "oneDNN 2.6.3 (...) for Intel AVX-512 with ...", or "none" where this program has no such library for the kind.
inline std::string kernel_library(DeviceKind kind) {
  const auto describe = kernel_library_slot[static_cast<std::size_t>(kind)].load();
  return describe ? describe() : "none";
}

}  // namespace replicator::detail
