// SPDX-License-Identifier: Apache-2.0
// Memory of the host that a device copies from and to: where the kind of device has a word in it (`StagingSupport`), of its choice.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include <replicator/core/array.hpp>
#include <replicator/core/device_support.hpp>

namespace replicator {

// Not initialised.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(const StagingSupport& staging, std::size_t bytes) : staging_{&staging}, bytes_{bytes}, data_{staging.allocate(bytes ? bytes : 1)} {}
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(staging_, other.staging_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~HostMemory() {
    if (data_) staging_->release(data_, bytes_ ? bytes_ : 1);
  }
  std::byte* data() const { return data_; }

 private:
  const StagingSupport* staging_ = nullptr;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

// Others' memory, pinned while this lives where that can be done; they keep it for so long.
class PinnedMemory {
 public:
  PinnedMemory(const StagingSupport& staging, std::byte* memory, std::size_t bytes) : staging_{&staging} {
    if (bytes && staging.pin(memory, bytes)) memory_ = memory;
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

// Zero-filled. `staging` may be null.
inline AnyArray host_array(const StagingSupport* staging, const TensorType& type) {
  if (!staging) return AnyArray{type};
  auto memory = std::make_shared<HostMemory>(*staging, type.bytes());
  std::memset(memory->data(), 0, type.bytes());
  auto* const data = memory->data();
  return AnyArray::borrow(type, data, std::move(memory));
}

}  // namespace replicator
