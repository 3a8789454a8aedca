// SPDX-License-Identifier: Apache-2.0
// Arena: a block of a device's memory. runtime/plan/place_in_arena.hpp decides which buffer lies where in it.
#pragma once

#include <cstddef>
#include <utility>

#include <replicator/devices/device_support.hpp>

namespace replicator::detail {

class Arena {
 public:
  Arena() = default;
  // Throws DeviceError if the device has not enough memory.
  Arena(const DeviceSupport& support, int index, std::size_t bytes) : support_{&support}, index_{index}, bytes_{bytes} {
    if (bytes) data_ = support.allocate(index, bytes);
  }
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept {
    std::swap(support_, other.support_);
    std::swap(index_, other.index_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Arena() {
    if (data_) support_->release(index_, data_, bytes_);
  }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  const DeviceSupport* support_ = nullptr;
  int index_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace replicator::detail
