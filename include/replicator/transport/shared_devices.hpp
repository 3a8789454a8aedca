// SPDX-License-Identifier: Apache-2.0
// The transport between ranks that are devices of several processes of one host, with one thread each. Processes open each other's
// device memory, so that all queues read it. Models DeviceMemory. Signals between the threads, and regions of host memory, are
// those of SharedMemory.
//
// For each allocation every rank has a *card* in host memory that all processes see:
//
//   owner    allocates, makes a mark, writes their handles on its card       ... frees both once every card says closed
//   others   wait for the card, open the handles, work ...   close them, write `closed` on their own card
//
// A mark is an event that its owner records and queues of other processes wait for. It needs no more than the order that
// transport.hpp asks for: a peer hears of a mark through host memory, after it was recorded.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/deadline_wait.hpp>
#include <replicator/core/error.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/job/job.hpp>
#include <replicator/transport/device_part.hpp>
#include <replicator/transport/shared_memory.hpp>
#include <replicator/transport/transport.hpp>

namespace replicator::detail::transport {

namespace detail {

// What a rank tells the others about its part of an allocation. Zero-filled at first.
struct alignas(64) SharedCard {
  std::uint32_t offered;  // 1: the handles are written
  std::uint32_t closed;   // 1: the rank's process has closed all that it opened for this rank
  SharedHandle memory, mark;
};

inline void set(std::uint32_t& word) { std::atomic_ref{word}.store(1); }
inline bool is_set(std::uint32_t& word) { return std::atomic_ref{word}.load() != 0; }

}  // namespace detail

class SharedDevices;

// One process's part of the state. It must outlive the endpoints, and all queues that were given to them. **Let it live until all
// processes have released their regions**, as they have when Job::leave or a barrier returns. What they have not released then
// stays allocated until this process ends, because a process may still read it.
class SharedDeviceGroup {
 public:
  // Collective over the processes of the job. process_of_rank[r] owns rank r; `indices`: the devices of this process's ranks, in
  // ascending order. The kind can share, and the process's own devices reach each other (see why_apart). The job must outlive it.
  // Throws BuildError where the processes are not on one host.
  SharedDeviceGroup(Job& job, const DeviceSupport& support, const std::vector<int>& process_of_rank, std::vector<int> indices)
      : job_{job}, support_{support}, process_of_rank_{process_of_rank}, indices_{std::move(indices)}, on_host_{SharedMemory::create(job, process_of_rank)}, ranks_(on_host_.size()) {
    if (indices_.size() != on_host_.size())
      throw BuildError{"this process has " + std::to_string(on_host_.size()) + " ranks, but " + std::to_string(indices_.size()) + " devices were named for them"};
  }
  SharedDeviceGroup(const SharedDeviceGroup&) = delete;
  SharedDeviceGroup& operator=(const SharedDeviceGroup&) = delete;
  ~SharedDeviceGroup() { free_closed(); }

  int size() const { return static_cast<int>(process_of_rank_.size()); }
  // Whether a device of the kind hangs, see DeviceSupport::abandon.
  bool abandoned() const { return support_.abandoned(); }
  // The ranks of this process, in ascending order.
  std::vector<int> local_ranks() const {
    std::vector<int> ranks;
    for (const auto& endpoint : on_host_) ranks.push_back(endpoint->rank());
    return ranks;
  }

 private:
  friend class SharedDevices;

  struct Allocation {
    explicit Allocation(std::size_t local_ranks) : parts(local_ranks) {}
    std::once_flag made;
    std::vector<DevicePart> parts;           // by rank of this process
    std::vector<detail::SharedCard*> cards;  // [rank]
    bool freed = false;
  };

  // What a rank has opened of a peer's part.
  struct Opened {
    const std::byte* data = nullptr;
    void* mark = nullptr;
  };
  // An allocation as seen by a rank of this process.
  struct Mine {
    Allocation* allocation;
    std::vector<Opened> opened;  // [rank], of other processes
  };
  // Of a rank of this process; its thread alone uses it.
  struct Rank {
    std::vector<Mine> mine;            // [id]
    std::vector<Region> card_regions;  // in host memory
  };

  int process_of(int rank) const { return process_of_rank_[static_cast<std::size_t>(rank)]; }
  bool is_local(int rank) const { return process_of(rank) == job_.rank(); }
  // The position of a rank among those of this process.
  std::size_t place_of(int rank) const {
    return static_cast<std::size_t>(std::count(process_of_rank_.begin(), process_of_rank_.begin() + rank, job_.rank()));
  }
  std::string describe(int rank) const { return "rank " + std::to_string(rank) + " of " + job_.describe(process_of(rank)); }

  // The first caller makes the parts of all ranks of this process. So no process waits for a thread of its own, and one thread may
  // serve several ranks. An allocation never moves.
  Allocation& make(std::uint32_t id, std::size_t bytes, std::vector<detail::SharedCard*> cards) {
    Allocation& found = numbered(id);
    std::call_once(found.made, [&] {
      free_closed();
      for (const auto& endpoint : on_host_) {
        const auto place = place_of(endpoint->rank());
        make(found.parts[place], indices_[place], bytes, *cards[static_cast<std::size_t>(endpoint->rank())]);
      }
      const std::lock_guard lock{mutex_};
      found.cards = std::move(cards);
    });
    return found;
  }
  void make(DevicePart& part, int index, std::size_t bytes, detail::SharedCard& card) const {
    const auto& sharing = *support_.sharing;
    part.bytes = bytes ? bytes : 1;
    if (!part.data) part.data = sharing.allocate(index, part.bytes, card.memory);
    if (!part.queue) part.queue = support_.make_queue(index);
    if (!part.begun) part.begun = support_.staging->make_event(index);
    if (!part.mark) part.mark = sharing.make_event(index, card.mark);
    detail::set(card.offered);
  }
  Allocation& numbered(std::uint32_t id) {
    const std::lock_guard lock{mutex_};
    while (allocations_.size() <= id) allocations_.emplace_back(on_host_.size());
    return allocations_[id];
  }

  // Waits until the queue has done its work. Gives the device up where it does not: work of a dead process is waited for in vain.
  void settle(const DevicePart& part) const {
    try {
      support_.staging->record(part.queue, part.begun);
      const auto begun = Clock::now();
      const auto limit = job_.options().exchange_deadline;
      while (!support_.abandoned() && !support_.staging->happened(part.begun)) {
        const auto waited = Clock::now() - begun;
        if (job_.aborted() ? waited > after_failure : limit.count() > 0 && waited > limit) return support_.abandon();
        ::sched_yield();
      }
    } catch (const DeviceError&) {  // the error has been reported already: a failed device does no more work
    }
  }
  // Ends the queue of a rank's part.
  void end(DevicePart& part, int index) const {
    settle(part);
    support_.destroy_queue(index, std::exchange(part.queue, nullptr));
    support_.staging->destroy_event(index, std::exchange(part.begun, nullptr));
  }
  // Frees the parts of this process that no process reads any more.
  void free_closed() {
    const std::lock_guard lock{mutex_};
    if (support_.abandoned()) return;
    for (auto& allocation : allocations_) {
      const auto& cards = allocation.cards;
      if (allocation.freed || cards.empty() || !std::all_of(cards.begin(), cards.end(), [](auto* card) { return detail::is_set(card->closed); })) continue;
      allocation.freed = true;
      for (std::size_t place = 0; place < allocation.parts.size(); ++place) {
        auto& part = allocation.parts[place];
        support_.staging->destroy_event(indices_[place], std::exchange(part.mark, nullptr));
        support_.release(indices_[place], std::exchange(part.data, nullptr), part.bytes);
      }
    }
  }

  Job& job_;
  const DeviceSupport& support_;
  const std::vector<int> process_of_rank_;
  const std::vector<int> indices_;                            // by rank of this process
  const std::vector<std::unique_ptr<SharedMemory>> on_host_;  // likewise
  std::vector<Rank> ranks_;                                   // likewise
  std::mutex mutex_;
  std::deque<Allocation> allocations_;  // [id]
};

// The endpoint of one rank of this process; used by one thread at a time. Several endpoints of a rank share their regions.
class SharedDevices : public DevicePartCalls<SharedDevices> {
 public:
  static constexpr bool between_processes = true;

  SharedDevices(SharedDeviceGroup& group, int rank)
      : group_{&group}, place_{group.place_of(rank)}, host_{group.on_host_[place_].get()}, state_{&group.ranks_[place_]} {}

  // --- as SharedMemory ---------------------------------------------------------------------------------------------------
  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }
  Region allocate(std::size_t bytes) { return host_->allocate(bytes); }
  void release(Region region) { host_->release(region); }
  const std::byte* peer(Region region, int peer) const { return host_->peer(region, peer); }
  void notify() { host_->notify(); }
  Ticket send(std::span<const std::byte> out, int peer, Slot slot) { return host_->send(out, peer, slot); }
  Ticket recv(std::span<std::byte> in, int peer, Slot slot) { return host_->recv(in, peer, slot); }
  bool done(Ticket ticket) { return host_->done(ticket); }
  void progress() { host_->progress(); }
  static bool flushed() { return true; }
  static int unsent_to() { return -1; }
  bool wait(const std::function<bool()>& ready, Clock::time_point until) { return host_->wait(ready, until); }

  // --- on devices --------------------------------------------------------------------------------------------------------
  Latency latency() const { return Latency::queues; }
  const DeviceSupport& support() const { return group_->support_; }
  int device_index() const { return group_->indices_[place_]; }

  // Does not wait for other ranks. Throws DeviceError where the device has not enough memory, or cannot share it.
  Region allocate_on_device(std::size_t bytes) {
    const auto id = static_cast<std::uint32_t>(state_->mine.size());
    auto& allocation = group_->make(id, bytes, cards(id));
    support().enter(device_index());  // making a part of another rank switches to its device
    host_->notify();
    state_->mine.push_back({&allocation, std::vector<Opened>(static_cast<std::size_t>(size()))});
    return {part(id).data, bytes, id};
  }
  // Waits until this rank's queue has done its work.
  void release_on_device(Region region) {
    group_->end(part(region.id), device_index());
    // What was not closed must not be freed either.
    if (support().abandoned()) return;
    auto& mine = state_->mine[region.id];
    for (auto& opened : mine.opened) {
      if (opened.mark) support().staging->destroy_event(device_index(), std::exchange(opened.mark, nullptr));
      if (opened.data) support().sharing->close(device_index(), std::exchange(opened.data, nullptr));
    }
    detail::set(mine.allocation->cards[static_cast<std::size_t>(rank())]->closed);
    group_->free_closed();
  }
  // Opens the peer's memory when it is first asked for, and waits until the peer has allocated it. Throws CommunicationError at the
  // job's deadline, DeviceError where the device cannot open it.
  const std::byte* device_peer(Region region, int peer) {
    if (group_->is_local(peer)) return part(region.id, peer).data;
    return opened(region, peer).data;
  }

 private:
  friend DevicePartCalls<SharedDevices>;
  using Opened = SharedDeviceGroup::Opened;
  static constexpr std::uint32_t cards_of_region = 64;  // so that few allocations take a region of their own

  const DevicePart& own_part(Region region) { return part(region.id); }
  void* mark_of(Region region, int peer) { return group_->is_local(peer) ? part(region.id, peer).mark : opened(region, peer).mark; }
  DevicePart& part(std::uint32_t id) { return state_->mine[id].allocation->parts[place_]; }
  DevicePart& part(std::uint32_t id, int local_rank) { return state_->mine[id].allocation->parts[group_->place_of(local_rank)]; }

  std::vector<detail::SharedCard*> cards(std::uint32_t id) {
    if (id % cards_of_region == 0) state_->card_regions.push_back(host_->allocate(cards_of_region * sizeof(detail::SharedCard)));
    std::vector<detail::SharedCard*> result;
    for (int rank = 0; rank < size(); ++rank)
      result.push_back(reinterpret_cast<detail::SharedCard*>(host_->writable_peer(state_->card_regions.back(), rank)) + id % cards_of_region);
    return result;
  }
  const Opened& opened(Region region, int peer) {
    auto& mine = state_->mine[region.id];
    auto& found = mine.opened[static_cast<std::size_t>(peer)];
    if (found.mark) return found;
    auto& card = *mine.allocation->cards[static_cast<std::size_t>(peer)];
    const DeadlineWait wait{{.deadline = group_->job_.options().exchange_deadline}};
    if (!host_->wait([&] { return detail::is_set(card.offered); }, wait.deadline()))
      throw CommunicationError{"rank " + std::to_string(rank()) + " waited until the deadline for " + group_->describe(peer) +
                                   " to allocate device memory for a collective. It is stopped or slow: look there, or allow more time with --deadline",
                               peer};
    try {
      if (!found.data) found.data = support().sharing->open(device_index(), card.memory);
      found.mark = support().sharing->open_event(device_index(), card.mark);
    } catch (const DeviceError& error) {
      throw DeviceError{error.what() + std::string{", that of "} + group_->describe(peer)};
    }
    return found;
  }

  SharedDeviceGroup* group_;
  std::size_t place_;
  SharedMemory* host_;
  SharedDeviceGroup::Rank* state_;
};

static_assert(DeviceMemory<SharedDevices>);

}  // namespace replicator::detail::transport
