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

inline constexpr std::int64_t pattern_words = 65536;
inline constexpr std::size_t pattern_bytes = pattern_words * sizeof(std::int32_t);

// Words that no two owners, readers and rounds have in common.
inline std::vector<std::int32_t> pattern(std::uint64_t owner, std::uint64_t reader, std::uint32_t round) {
  std::vector<std::int32_t> words(pattern_words);
  PhiloxStream random{reader, owner, round};
  for (auto& word : words) word = static_cast<std::int32_t>(random.below(std::numeric_limits<std::int32_t>::max()));
  return words;
}

// Lets a queue read a pattern from `theirs` into `mine`, which has room for two, by a copy and by loads of a kernel. settle()
// returns when the queue is empty. Returns which of both read other words: "copies", "kernels" or an empty text.
template <class Settle>
std::string read_wrongly(const DeviceSupport& support, void* queue, std::byte* mine, const std::byte* theirs, const std::vector<std::int32_t>& wanted, Settle settle) {
  const std::vector<std::int32_t> least(2 * pattern_words, std::numeric_limits<std::int32_t>::min());
  std::vector<std::int32_t> found(2 * pattern_words);
  support.copy(queue, mine, reinterpret_cast<const std::byte*>(least.data()), 2 * pattern_bytes);
  support.copy(queue, mine, theirs, pattern_bytes);
  support.fold(queue, DType::int32, Reduction::max, mine + pattern_bytes, mine + pattern_bytes, theirs, pattern_words);
  settle();  // a copy to plain memory may block without a limit
  support.copy(queue, reinterpret_cast<std::byte*>(found.data()), mine, 2 * pattern_bytes);
  settle();
  for (const auto& [way, first] : {std::pair{"copies", std::int64_t{0}}, std::pair{"kernels", pattern_words}})
    if (!std::equal(wanted.begin(), wanted.end(), found.begin() + first)) return way;
  return {};
}

// Two sentences about what stands between `reader` and `owner`, which are names of devices.
inline std::string misread_text(const std::string& way, const std::string& reader, const std::string& owner) {
  return way + " of " + reader + " read other bytes from the memory of " + owner +
         " than are there: an IOMMU or the access control of PCIe bridges (ACS) stands between them, and is to be switched off";
}
inline DeviceError does_not_come_back(const std::string& reader, const std::string& owner) {
  return DeviceError{reader + " does not come back from reading the memory of " + owner +
                     ": an IOMMU or the access control of PCIe bridges (ACS) may stand between them; switch it off, or name one of them only"};
}

// Lets device `index` read random patterns from the memory of `peer`, by copies and by loads of a kernel. The device must
// have reached the peer before. Returns what is wrong, or an empty string. `kind`: of both devices. Throws DeviceError
// where a device does not come back.
inline std::string why_misread(const DeviceSupport& support, std::string_view kind, int index, int peer) {
  const std::string reader = std::string{kind} + ":" + std::to_string(index), owner = std::string{kind} + ":" + std::to_string(peer);
  const auto settle = [&](const detail::PeerProbe& probe) {
    if (probe.settles()) return;
    support.abandon();
    throw does_not_come_back(reader, owner);
  };
  const detail::PeerProbe theirs{support, peer, pattern_bytes};
  const detail::PeerProbe mine{support, index, 2 * pattern_bytes};
  for (std::uint32_t round = 0; round < 2; ++round) {  // the first round's bytes, if they are still there, differ from the second's
    const auto wanted = pattern(static_cast<std::uint64_t>(peer), static_cast<std::uint64_t>(index), round);
    theirs.enter();
    support.copy(theirs.queue(), theirs.data(), reinterpret_cast<const std::byte*>(wanted.data()), pattern_bytes);
    settle(theirs);
    mine.enter();
    if (const auto way = read_wrongly(support, mine.queue(), mine.data(), theirs.data(), wanted, [&] { settle(mine); }); !way.empty())
      return misread_text(way, reader, owner);
  }
  return {};
}

}  // namespace replicator::detail::transport
