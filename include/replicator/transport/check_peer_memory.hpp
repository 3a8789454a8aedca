// SPDX-License-Identifier: Apache-2.0
// Tests whether devices read each other's memory correctly. **One device may read wrong bytes from another, without an
// error.** That happens where an IOMMU or the access control of PCIe bridges (ACS) stands between them.
// Source: CUDA C++ Programming Guide, "IOMMU on Linux"; NCCL's manual, "PCI Access Control Services".
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail::transport {

namespace detail {

// A queue of a device, some of its memory, and a wait with a limit.
class PeerProbe {
 public:
  PeerProbe(const DeviceSupport& support, int index, std::size_t bytes)
      : support_{support}, index_{index}, bytes_{bytes}, data_{support.allocate(index, bytes)}, queue_{support.make_queue(index)}, done_{support.staging->make_event(index)} {}
  PeerProbe(const PeerProbe&) = delete;
  PeerProbe& operator=(const PeerProbe&) = delete;
  ~PeerProbe() {
    support_.destroy_queue(index_, queue_);
    support_.staging->destroy_event(index_, done_);
    support_.release(index_, data_, bytes_);
  }

  std::byte* data() const { return data_; }
  void* queue() const { return queue_; }
  void enter() const { support_.enter(index_); }
  // Waits until the queue is empty. Returns false after 20 s.
  bool settles() const {
    support_.staging->record(queue_, done_);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    while (!support_.staging->happened(done_)) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    support_.synchronise(queue_);
    return true;
  }

 private:
  const DeviceSupport& support_;
  int index_;
  std::size_t bytes_;
  std::byte* data_;
  void* queue_;
  void* done_;
};

}  // namespace detail

// Lets device `index` read random patterns from the memory of `peer`, by copies and by loads of a kernel. The device must
// have reached the peer before. Returns what is wrong, or an empty string. `kind`: of both devices. Throws DeviceError
// where a device does not come back.
inline std::string why_misread(const DeviceSupport& support, std::string_view kind, int index, int peer) {
  constexpr std::int64_t words = 65536;
  constexpr std::size_t bytes = words * sizeof(std::int32_t);
  const std::string reader = std::string{kind} + ":" + std::to_string(index), owner = std::string{kind} + ":" + std::to_string(peer);
  const auto settle = [&](const detail::PeerProbe& probe) {
    if (probe.settles()) return;
    support.abandon();
    throw DeviceError{reader + " does not come back from reading the memory of " + owner +
                      ": an IOMMU or the access control of PCIe bridges (ACS) may stand between them; switch it off, or name one of them only"};
  };
  const detail::PeerProbe theirs{support, peer, bytes};
  const detail::PeerProbe mine{support, index, 2 * bytes};
  std::vector<std::int32_t> wanted(words), found(2 * words);
  const std::vector<std::int32_t> least(2 * words, std::numeric_limits<std::int32_t>::min());
  for (std::uint32_t round = 0; round < 2; ++round) {  // the first round's bytes, if they are still there, differ from the second's
    PhiloxStream random{static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(peer), round};
    for (auto& word : wanted) word = static_cast<std::int32_t>(random.below(std::numeric_limits<std::int32_t>::max()));
    theirs.enter();
    support.copy(theirs.queue(), theirs.data(), reinterpret_cast<const std::byte*>(wanted.data()), bytes);
    settle(theirs);
    mine.enter();
    support.copy(mine.queue(), mine.data(), reinterpret_cast<const std::byte*>(least.data()), 2 * bytes);
    support.copy(mine.queue(), mine.data(), theirs.data(), bytes);
    support.fold(mine.queue(), DType::int32, Reduction::max, mine.data() + bytes, mine.data() + bytes, theirs.data(), words);
    settle(mine);  // a copy to plain memory may block without a limit
    support.copy(mine.queue(), reinterpret_cast<std::byte*>(found.data()), mine.data(), 2 * bytes);
    settle(mine);
    for (const auto& [way, first] : {std::pair{"copies", 0}, std::pair{"kernels", static_cast<int>(words)}})
      if (!std::equal(wanted.begin(), wanted.end(), found.begin() + first))
        return way + std::string{" of "} + reader + " read other bytes from the memory of " + owner +
               " than are there: an IOMMU or the access control of PCIe bridges (ACS) stands between them, and is to be switched off";
  }
  return {};
}

}  // namespace replicator::detail::transport
