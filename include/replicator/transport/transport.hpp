// SPDX-License-Identifier: Apache-2.0
// What moves bytes between ranks. A rank is one device of the job; one endpoint belongs to one thread.
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

// Memory a transport can send from and receive into (and, where it is PeerReadable, that peers can load from).
// Zero-filled, 64-byte aligned, lives as long as the transport. `id` counts allocations: equal on every rank.
struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t id = 0;
};

// The tag of a message: which collective of the program, which channel and which instruction of it.
// Checked: a field that would overflow throws instead of meeting another message.
class Slot {
 public:
  constexpr Slot(std::uint32_t collective, std::uint32_t channel, std::uint32_t instruction)
      : value_{(std::uint64_t{collective} << 36) | (std::uint64_t{channel} << 28) | instruction} {
    if (collective >= (1u << 20) || channel >= (1u << 8) || instruction >= (1u << 28))
      throw BuildError{"a message tag is out of range"};
  }
  constexpr std::uint64_t value() const { return value_; }  // 56 bits

 private:
  std::uint64_t value_;
};

// A posted send or receive; `index` is the transport's own.
struct Ticket {
  std::uint32_t index = 0;
};

// What one exchange more between ranks takes, ascending: equal on every rank.
enum class Latency {
  memory,          // a word passed from core to core
  crowded_memory,  // the same, but not every rank has a core: another one has to be let in
  queues,          // a queue of a device waits for one of another device
  messages,        // sent, received, and often woken up for
};

// Messages with the same (source, destination, slot) match in the order in which they were posted.
// Every function throws CommunicationError once the job has been aborted.
template <class T>
concept Transport = requires(T& t, std::size_t bytes, int peer, Slot slot, Ticket ticket, std::span<const std::byte> out,
                             std::span<std::byte> in, const std::function<bool()>& ready, Clock::time_point until) {
  { t.rank() } -> std::same_as<int>;
  { t.size() } -> std::same_as<int>;
  { t.latency() } -> std::same_as<Latency>;
  // Collective: every rank calls it in the same order with the same size.
  { t.allocate(bytes) } -> std::same_as<Region>;
  // Non-blocking; the bytes stay untouched until done(ticket). `done` true once releases the ticket.
  { t.send(out, peer, slot) } -> std::same_as<Ticket>;
  { t.recv(in, peer, slot) } -> std::same_as<Ticket>;
  { t.done(ticket) } -> std::same_as<bool>;
  // Moves what can be moved now, without blocking.
  t.progress();
  // Makes progress until `ready()` or the time: first spinning, then asleep. Returns the last `ready()`.
  { t.wait(ready, until) } -> std::same_as<bool>;
};

// Peers can be read by plain loads. Words inside a region that ranks use to signal are written with
// seq_cst std::atomic_ref stores, followed by notify() so that sleeping peers look again.
template <class T>
concept PeerReadable = Transport<T> && requires(T& t, Region region, int peer) {
  { t.peer(region, peer) } -> std::same_as<const std::byte*>;
  t.notify();
};

// Peers can be written by plain stores, too: who has computed a value saves them the trip to fetch it.
template <class T>
concept PeerWritable = PeerReadable<T> && requires(T& t, Region region, int peer) {
  { t.writable_peer(region, peer) } -> std::same_as<std::byte*>;
};

// Regions may also lie in the memory of the ranks' devices, which read each other's. Work on such a region is queued, each rank's in a queue of
// its own, in order; marks tell queues of each other.
template <class T>
concept DeviceMemory = PeerReadable<T> && requires(T& t, std::size_t bytes, Region region, int peer, void* queue) {
  // As allocate, but not zero-filled, and not for send and recv.
  { t.allocate_on_device(bytes) } -> std::same_as<Region>;
  // Nobody has work on this rank's part, now or later; when that is so of all, they are given back.
  t.release_on_device(region);
  { t.device_peer(region, peer) } -> std::same_as<const std::byte*>;
  // The device, and this rank's queue for the region.
  { t.support() } -> std::same_as<const DeviceSupport&>;
  { t.device_index() } -> std::same_as<int>;
  { t.queue(region) } -> std::same_as<void*>;
  // The region's queue goes on when all is done that `queue`, another one of the device, has been given until now.
  t.begin_behind(region, queue);
  // Whether it has been.
  { t.begun(region) } -> std::same_as<bool>;
  // From now on the mark is that all is done which the region's queue has been given until now.
  t.mark(region);
  // The region's queue goes on when the peer's mark, as it was set last, has come. It must have been set: nobody waits for what is not queued yet.
  t.wait_for_mark(region, peer);
  // `queue`, another one of the device, goes on when this rank's mark has come; whether it has.
  t.precede(region, queue);
  { t.marked(region) } -> std::same_as<bool>;
};

}  // namespace replicator::detail::transport
