// SPDX-License-Identifier: Apache-2.0
// A byte stream from one writer to one reader through shared memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace replicator::detail::transport::detail {

// All zero means empty. `written` and `read` count bytes since the start and never wrap.
//
// Each side owns one counter, but the other side can write both. Whatever they hold, nothing outside of `data` is touched.
// The caller must check for damage: a ring whose content or room is larger than its capacity.
struct SharedRing {
  static constexpr std::size_t capacity = 65536;
  alignas(64) std::uint64_t written;
  alignas(64) std::uint64_t read;
  alignas(64) std::byte data[capacity];
};

inline std::size_t room_in(SharedRing& ring) {
  return SharedRing::capacity - static_cast<std::size_t>(std::atomic_ref{ring.written}.load(std::memory_order_relaxed) -
                                                         std::atomic_ref{ring.read}.load(std::memory_order_acquire));
}

inline std::size_t available_in(SharedRing& ring) {
  return static_cast<std::size_t>(std::atomic_ref{ring.written}.load(std::memory_order_acquire) -
                                  std::atomic_ref{ring.read}.load(std::memory_order_relaxed));
}

// For the writer: writes as many bytes as there is room for, and returns how many.
inline std::size_t write_some(SharedRing& ring, std::span<const std::byte> bytes) {
  const std::uint64_t at = std::atomic_ref{ring.written}.load(std::memory_order_relaxed);
  const std::size_t count = std::min({bytes.size(), room_in(ring), SharedRing::capacity});
  const std::size_t offset = static_cast<std::size_t>(at % SharedRing::capacity);
  const std::size_t first = std::min(count, SharedRing::capacity - offset);
  if (count == 0) return 0;
  std::memcpy(ring.data + offset, bytes.data(), first);
  std::memcpy(ring.data, bytes.data() + first, count - first);
  std::atomic_ref{ring.written}.store(at + count, std::memory_order_release);
  return count;
}

// For the reader: reads as many of the arrived bytes as fit, and returns how many.
inline std::size_t read_some(SharedRing& ring, std::span<std::byte> bytes) {
  const std::uint64_t at = std::atomic_ref{ring.read}.load(std::memory_order_relaxed);
  const std::size_t count = std::min({bytes.size(), available_in(ring), SharedRing::capacity});
  const std::size_t offset = static_cast<std::size_t>(at % SharedRing::capacity);
  const std::size_t first = std::min(count, SharedRing::capacity - offset);
  if (count == 0) return 0;
  std::memcpy(bytes.data(), ring.data + offset, first);
  std::memcpy(bytes.data() + first, ring.data, count - first);
  std::atomic_ref{ring.read}.store(at + count, std::memory_order_release);
  return count;
}

}  // namespace replicator::detail::transport::detail
