// SPDX-License-Identifier: Apache-2.0
// The transport between ranks that are devices of one process, with one thread each. Their queues read each other's memory.
// Models DeviceMemory. Signals between the threads, and regions of host memory, are those of InProcess.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/devices/device_support.hpp>
#include <replicator/transport/check_peer_memory.hpp>
#include <replicator/transport/device_part.hpp>
#include <replicator/transport/in_process.hpp>
#include <replicator/transport/transport.hpp>
#include <replicator/transport/why_apart.hpp>

namespace replicator::detail::transport {

template <class>
std::string why_apart(const DeviceSupport& support, std::string_view kind, std::span<const int> indices) {
  if (!support.peers) return "devices of this kind do not reach each other's memory";
  const std::set<int> devices{indices.begin(), indices.end()};
  for (const int index : devices)
    for (const int peer : devices) {
      if (index == peer) continue;
      if (auto reason = support.peers->reach(index, peer); !reason.empty()) return reason;
      if (auto reason = why_misread(support, kind, index, peer); !reason.empty()) return reason;
    }
  return {};
}

// The state that the endpoints share. It must outlive them, and all queues that were given to them.
class InProcessDeviceGroup : public InProcessGroup {
 public:
  // `indices`: the device of each rank. The kind has peers, and the devices reach each other (see why_apart).
  InProcessDeviceGroup(const DeviceSupport& support, std::vector<int> indices)
      : InProcessGroup{static_cast<int>(indices.size())}, support_{support}, indices_{std::move(indices)} {}
  ~InProcessDeviceGroup() {
    for (auto& allocation : allocations_) give_back(allocation);
  }

 private:
  friend class InProcessDevices;

  struct Part : DevicePart {
    std::once_flag made;
  };

  struct Allocation {
    explicit Allocation(std::size_t ranks) : parts(ranks) {}
    std::vector<Part> parts;   // [rank]
    std::size_t released = 0;  // number of ranks that released it
  };

  // Ends all queues first: their work may use the memory of other ranks.
  void give_back(Allocation& allocation) {
    for (std::size_t rank = 0; rank < indices_.size(); ++rank)
      if (auto& queue = allocation.parts[rank].queue) support_.destroy_queue(indices_[rank], std::exchange(queue, nullptr));
    for (std::size_t rank = 0; rank < indices_.size(); ++rank) {
      auto& part = allocation.parts[rank];
      for (void** event : {&part.begun, &part.mark})
        if (*event) support_.staging->destroy_event(indices_[rank], std::exchange(*event, nullptr));
      if (part.data) support_.release(indices_[rank], std::exchange(part.data, nullptr), part.bytes);
    }
  }
  void release(std::uint32_t id) {
    Allocation* last = nullptr;
    {
      const std::lock_guard lock{parts_mutex_};
      if (++allocations_[id].released == indices_.size()) last = &allocations_[id];
    }
    if (last) give_back(*last);
  }
  // A part never moves. The first caller makes it.
  Part& part(std::uint32_t id, std::size_t bytes, int rank) {
    const int index = indices_[static_cast<std::size_t>(rank)];
    Part& found = numbered(id, rank);
    std::call_once(found.made, [&] {
      found.bytes = bytes ? bytes : 1;
      if (!found.data) found.data = support_.allocate(index, found.bytes);
      if (!found.queue) found.queue = support_.make_queue(index);
      if (!found.begun) found.begun = support_.staging->make_event(index);
      found.mark = support_.staging->make_event(index);
    });
    return found;
  }
  Part& numbered(std::uint32_t id, int rank) {
    const std::lock_guard lock{parts_mutex_};
    while (allocations_.size() <= id) allocations_.emplace_back(indices_.size());
    return allocations_[id].parts[static_cast<std::size_t>(rank)];
  }

  const DeviceSupport& support_;
  const std::vector<int> indices_;  // [rank]
  std::mutex parts_mutex_;
  std::deque<Allocation> allocations_;
};

// The endpoint of one rank; used by one thread at a time.
class InProcessDevices : public InProcess, public DevicePartCalls<InProcessDevices> {
 public:
  static constexpr bool between_processes = false;

  InProcessDevices(InProcessDeviceGroup& group, int rank) : InProcess{group, rank}, group_{&group} {}

  Latency latency() const { return Latency::queues; }
  const DeviceSupport& support() const { return group_->support_; }
  // The index of the device in its kind.
  int device_index() const { return group_->indices_[static_cast<std::size_t>(rank())]; }

  // Throws DeviceError where the device has not enough memory.
  Region allocate_on_device(std::size_t bytes) {
    const std::uint32_t id = regions_++;
    return {group_->part(id, bytes, rank()).data, bytes, id};
  }
  void release_on_device(Region region) { group_->release(region.id); }
  const std::byte* device_peer(Region region, int peer) {
    const auto* const data = part(region, peer).data;
    support().enter(device_index());  // making a peer's part switches to the peer's device
    return data;
  }

 private:
  friend DevicePartCalls<InProcessDevices>;

  const DevicePart& own_part(Region region) { return part(region, rank()); }
  void* mark_of(Region region, int peer) { return part(region, peer).mark; }
  InProcessDeviceGroup::Part& part(Region region, int rank) { return group_->part(region.id, region.bytes, rank); }

  InProcessDeviceGroup* group_;
  std::uint32_t regions_ = 0;  // on devices
};

static_assert(DeviceMemory<InProcessDevices>);

}  // namespace replicator::detail::transport
