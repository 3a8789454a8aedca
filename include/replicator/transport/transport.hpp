// SPDX-License-Identifier: Apache-2.0
// Transport: the concept of what moves bytes between ranks. A rank is one device of the job; an endpoint belongs to one
// thread.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <replicator/core/error.hpp>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail::transport {

using Clock = std::chrono::steady_clock;

// Memory that a transport can send from and receive into; with PeerReadable, peers can also load from it. Zero-filled and
// 64-byte aligned. It lives until all ranks have released it, and at most as long as the transport. `id` counts allocations
// and is equal on every rank.
struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t id = 0;
};

// The tag of a message: its collective in the program, its channel, and its instruction. Throws BuildError for a field that
// would overflow, so that no two messages share a tag by mistake.
class Slot {
 public:
  constexpr Slot(std::uint32_t collective, std::uint32_t channel, std::uint32_t instruction)
      : value_{(std::uint64_t{collective} << 36) | (std::uint64_t{channel} << 28) | instruction} {
    if (collective >= (1u << 20) || channel >= (1u << 8) || instruction >= (1u << 28))
      throw BuildError{
          "this job has compiled too many collectives, so that a message cannot be told from others: make each step once and keep it, and bring the "
          "elements to fewer sets of shapes, for example by padding"};
  }
  constexpr std::uint64_t value() const { return value_; }  // 56 bits

 private:
  std::uint64_t value_;
};

// A posted send or receive. Only the transport interprets `index`.
struct Ticket {
  std::uint32_t index = 0;
};

// The cost of one more exchange between ranks, in ascending order. Equal on every rank.
enum class Latency {
  memory,          // a word passed from core to core
  crowded_memory,  // the same, but ranks outnumber cores: another rank must be scheduled first
  queues,          // a queue of a device waits for one of another device
  messages,        // sent and received; the receiver often sleeps
};

// Messages with the same (source, destination, slot) match in the order in which they were posted.
// Every function throws CommunicationError once the job has been aborted.
template <class T>
concept Transport = requires(T& t, std::size_t bytes, Region region, int peer, Slot slot, Ticket ticket, std::span<const std::byte> out,
                             std::span<std::byte> in, const std::function<bool()>& ready, Clock::time_point until) {
  { t.rank() } -> std::same_as<int>;
  { t.size() } -> std::same_as<int>;
  { t.latency() } -> std::same_as<Latency>;
  // Collective: every rank calls it in the same order with the same size.
  { t.allocate(bytes) } -> std::same_as<Region>;
  // Says that this rank uses the region no more, its peers' parts included, and that no message of it is under way.
  t.release(region);
  // Non-blocking. Leave the bytes alone until done(ticket). When `done` has returned true, the ticket is released.
  { t.send(out, peer, slot) } -> std::same_as<Ticket>;
  { t.recv(in, peer, slot) } -> std::same_as<Ticket>;
  { t.done(ticket) } -> std::same_as<bool>;
  // Moves what can be moved now, without blocking.
  t.progress();
  // Whether this rank may stop making progress: no message of it is still in this process. A send may be done sooner, when the transport
  // has a copy. Also true while other tickets are open, because whoever waits for those makes progress.
  { t.flushed() } -> std::same_as<bool>;
  // The rank for which something is still here; -1 where that is not known, or nothing is.
  { t.unsent_to() } -> std::same_as<int>;
  // Makes progress until `ready()` or the time: first spinning, then asleep. Returns the last `ready()`.
  { t.wait(ready, until) } -> std::same_as<bool>;
};

// Peers can be read by plain loads. Ranks signal with words inside a region: they write them with seq_cst std::atomic_ref
// stores, then call notify() so that sleeping peers look again.
template <class T>
concept PeerReadable = Transport<T> && requires(T& t, Region region, int peer) {
  { t.peer(region, peer) } -> std::same_as<const std::byte*>;
  t.notify();
};

// Peers can also be written by plain stores. A rank that has computed a value then saves its peers the fetch.
template <class T>
concept PeerWritable = PeerReadable<T> && requires(T& t, Region region, int peer) {
  { t.writable_peer(region, peer) } -> std::same_as<std::byte*>;
};

// How long queues may still work after a job has failed. A queue may wait for one of a process that is dead, and then for ever.
inline constexpr std::chrono::seconds after_failure{5};

// Regions may also lie in the memory of the ranks' devices, which read each other's memory. Work on such a region is
// queued: each rank has one queue for it, which works in order. Marks synchronise the queues.
template <class T>
concept DeviceMemory = PeerReadable<T> && requires(T& t, std::size_t bytes, Region region, int peer, void* queue) {
  // Like allocate, but not zero-filled, and not for send and recv.
  { t.allocate_on_device(bytes) } -> std::same_as<Region>;
  // Says that this rank has no more work on the region. When all ranks have said so, the region is freed.
  t.release_on_device(region);
  { t.device_peer(region, peer) } -> std::same_as<const std::byte*>;
  // The device, its index in its kind, and this rank's queue for the region.
  { t.support() } -> std::same_as<const DeviceSupport&>;
  { t.device_index() } -> std::same_as<int>;
  { t.queue(region) } -> std::same_as<void*>;
  // The region's queue waits for all work that `queue`, another queue of the device, was given until now.
  t.begin_behind(region, queue);
  // Whether that work is done.
  { t.begun(region) } -> std::same_as<bool>;
  // Sets the mark: it is reached when all work that the region's queue was given until now is done.
  t.mark(region);
  // The region's queue waits for the peer's mark, as it was set last. The mark must have been set: a queue must not wait
  // for work that is not queued yet.
  t.wait_for_mark(region, peer);
  // `queue`, another queue of the device, waits for this rank's mark. `marked`: whether the mark is reached.
  t.precede(region, queue);
  { t.marked(region) } -> std::same_as<bool>;
  // Whether queues wait for queues of other processes.
  { T::between_processes } -> std::convertible_to<bool>;
};

}  // namespace replicator::detail::transport
