// SPDX-License-Identifier: Apache-2.0
// Pretended devices and their memory. Only their own queues can access it, and the devices that have been given access.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/philox.hpp>

#include "pretend_sharing.hpp"
#include "pretend_sync.hpp"

namespace replicator::test::pretend {

using namespace replicator::detail;

inline constexpr int devices = 8;
inline std::optional<std::uint64_t> by_threads;  // queues are threads, which draw their delays by this seed. Memory is then accessible to all

struct Work;

// What a device has room for, at addresses that nobody touches but while its queues work.
class Memory {
 public:
  std::byte* allocate(std::size_t bytes) {
    if (!base_) base_ = static_cast<std::byte*>(::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (blocks_.empty()) used_ = 0;
    auto* const data = base_ + used_;
    used_ += (bytes + page - 1) / page * page;
    if (by_threads) protect(PROT_READ | PROT_WRITE);
    if (used_ > room) throw DeviceError{"a pretended device is full"};
    blocks_.emplace_back(data, bytes);
    return data;
  }
  // A block that other processes can open.
  std::byte* share(std::size_t bytes, SharedHandle& handle) {
    const SharedFile file{bytes};
    shared_.push_back(file);
    if (by_threads) file.protect(PROT_READ | PROT_WRITE);
    handle = file.handle();
    return file.data();
  }
  // Opens a block of another process.
  const std::byte* open(const SharedHandle& handle) {
    const SharedFile file{handle};
    opened_.push_back(file);
    if (by_threads) file.protect(PROT_READ);
    return file.data();
  }
  // Returns its size.
  std::size_t close(const std::byte* data) {
    const auto found = std::find_if(opened_.begin(), opened_.end(), [&](const auto& file) { return file.data() == data; });
    const auto bytes = found->bytes();
    found->close();
    opened_.erase(found);
    return bytes;
  }
  // Returns false if the block was released while another process had it open.
  bool release(std::byte* data) {
    if (const auto found = std::find_if(shared_.begin(), shared_.end(), [&](const auto& file) { return file.data() == data; }); found != shared_.end()) {
      const bool closed = found->state().open == 0;
      found->unmap();
      shared_.erase(found);
      return closed;
    }
    std::erase_if(blocks_, [&](const auto& block) { return block.first == data; });
    if (blocks_.empty() && base_) ::madvise(base_, used_, MADV_DONTNEED);
    return true;
  }
  void protect(int protection) const {
    if (used_) ::mprotect(base_, used_, protection);
    for (const auto& file : shared_) file.protect(protection);
  }
  // What it has opened is only read.
  void protect_opened(int protection) const {
    for (const auto& file : opened_) file.protect(protection);
  }
  bool has_opened(const std::byte* pointer) const {
    return std::any_of(opened_.begin(), opened_.end(), [&](const auto& file) { return file.holds(pointer); });
  }
  bool holds(const std::byte* pointer) const {
    return std::any_of(shared_.begin(), shared_.end(), [&](const auto& file) { return file.holds(pointer); }) || std::any_of(blocks_.begin(), blocks_.end(), [&](const auto& block) { return pointer >= block.first && pointer <= block.first + block.second; });
  }
  bool empty() const { return blocks() == 0; }
  std::size_t blocks() const { return blocks_.size() + shared_.size() + opened_.size(); }

 private:
  static constexpr std::size_t page = 4096, room = std::size_t{1} << 30;

  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  std::vector<std::pair<std::byte*, std::size_t>> blocks_;
  std::vector<SharedFile> shared_, opened_;
};

struct Device {
  Memory memory;
  std::set<int> reached;  // devices whose memory it reads
  std::vector<Work*> queues;
  std::atomic<int> captures{0}, events{0};
  PhiloxStream random{17, 0};  // draws what runs next
  bool sleeps = false;
  bool held = false;                              // works when it is waited for, and by no other chance
  bool lost = false;                              // it folds no more
  std::atomic<bool> stuck{false};                 // it does nothing more
  std::atomic<bool> fails{false}, failed{false};  // its next fold does, which is told when the device is waited for

  bool owns(const std::byte* pointer) {
    const Locked locked;
    return memory.holds(pointer);
  }
  bool reads(const std::byte* pointer);
  void open();
  void close();
};
inline std::array<Device, devices>& all() {
  static std::array<Device, devices> result;
  return result;
}
inline Device& device(int index) { return all().at(static_cast<std::size_t>(index)); }

inline bool Device::reads(const std::byte* pointer) {
  const Locked locked;
  return memory.holds(pointer) || memory.has_opened(pointer) || std::any_of(reached.begin(), reached.end(), [&](int peer) { return device(peer).memory.holds(pointer); });
}
inline void Device::open() {
  for (const int peer : reached) device(peer).memory.protect(PROT_READ);
  memory.protect(PROT_READ | PROT_WRITE);
  memory.protect_opened(PROT_READ);
}
inline void Device::close() {
  memory.protect(PROT_NONE);
  memory.protect_opened(PROT_NONE);
  for (const int peer : reached) device(peer).memory.protect(PROT_NONE);
}

}  // namespace replicator::test::pretend
