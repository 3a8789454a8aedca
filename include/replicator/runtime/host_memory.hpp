// SPDX-License-Identifier: Apache-2.0
// HostMemory: host memory that a device copies from and to. The kind of device may allocate it (`StagingSupport`),
// usually as pinned memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include <replicator/core/array.hpp>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail {
// True once this process has warned that a device must copy from or to plain memory.
inline constinit std::atomic<bool> told_of_plain_memory{false};
inline void tell_of_plain_memory(std::size_t bytes) {
  if (told_of_plain_memory.exchange(true)) return;
  std::fprintf(stderr,
               "replicator: %zu bytes of the host's memory could not be pinned for a device's copies; later ones are not reported. Such copies are slow, "
               "and no deadline ends them if the device hangs. Raise the limit of locked memory (ulimit -l), or leave more of it free\n",
               bytes);
}

// Uninitialised and at least 64-byte aligned. If the kind of device can give none, it is plain memory, with one warning
// on stderr.
class HostMemory {
 public:
  HostMemory() = default;
  // For a device that computes on host memory.
  explicit HostMemory(std::size_t bytes) : bytes_{bytes ? bytes : 1} { be_plain(); }
  HostMemory(const StagingSupport& staging, std::size_t bytes) : bytes_{bytes ? bytes : 1}, data_{staging.allocate(bytes_)} {
    if (data_) {
      staging_ = &staging;
      return;
    }
    detail::tell_of_plain_memory(bytes_);
    be_plain();
  }
  // `staging` may be null.
  HostMemory(const StagingSupport* staging, std::size_t bytes) : HostMemory{staging ? HostMemory{*staging, bytes} : HostMemory{bytes}} {}
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(staging_, other.staging_);
    std::swap(plain_, other.plain_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~HostMemory() {
    if (staging_) staging_->release(data_, bytes_);
  }
  std::byte* data() const { return data_; }

 private:
  void be_plain() {
    plain_ = detail::aligned_bytes(bytes_);
    data_ = plain_.get();
  }

  const StagingSupport* staging_ = nullptr;  // the owner of the memory; null if it is plain
  detail::AlignedBytes plain_;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

// Pins memory of another owner during its own lifetime. Nothing else may lie on its pages. The owner must keep it for that
// time. Warns once on stderr if pinning fails.
class PinnedMemory {
 public:
  PinnedMemory(const StagingSupport& staging, std::byte* memory, std::size_t bytes) : staging_{&staging} {
    if (bytes == 0) return;
    if (staging.pin(memory, bytes)) memory_ = memory;
    else detail::tell_of_plain_memory(bytes);
  }
  PinnedMemory(PinnedMemory&& other) noexcept : staging_{other.staging_}, memory_{std::exchange(other.memory_, nullptr)} {}
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  ~PinnedMemory() {
    if (memory_) staging_->unpin(memory_);
  }

 private:
  const StagingSupport* staging_;
  std::byte* memory_ = nullptr;
};

// Filled with zeros. `staging` may be null.
inline AnyArray host_array(const StagingSupport* staging, const TensorType& type) {
  if (!staging) return AnyArray{type};
  auto memory = std::make_shared<HostMemory>(*staging, type.bytes());
  std::memset(memory->data(), 0, type.bytes());
  auto* const data = memory->data();
  return AnyArray::borrow(type, data, std::move(memory));
}

}  // namespace replicator::detail
