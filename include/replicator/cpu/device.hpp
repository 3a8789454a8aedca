// SPDX-License-Identifier: Apache-2.0
// Registers the CPU as a kind of device. cpu:i is a logical device, so every index is valid.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string>

#include <replicator/devices/device_support.hpp>
#include <replicator/devices/pages.hpp>

namespace replicator::detail::cpu {

namespace detail {

inline void require(int) {}

inline std::byte* allocate(int, std::size_t bytes) {
  auto pages = replicator::detail::map_pages(bytes);
  if (!pages)
    throw DeviceError{"cannot map " + std::to_string(bytes) + " bytes for the step's buffers: use smaller batches or fewer replicas per host"};
  return pages.release();
}
// The machine's memory in bytes. A container's limit is not looked up.
inline std::size_t memory(int) {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(size) : 0;
}
inline void release(int, std::byte* memory, std::size_t bytes) noexcept { replicator::detail::Unmap{bytes}(memory); }

}  // namespace detail

inline constexpr DeviceSupport support{
    .require = &detail::require, .allocate = &detail::allocate, .release = &detail::release, .memory = &detail::memory};

inline const bool device_registered = [] {
  device_support[static_cast<std::size_t>(DeviceKind::cpu)].store(&support);
  return true;
}();

}  // namespace replicator::detail::cpu
