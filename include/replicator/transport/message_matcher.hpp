// SPDX-License-Identifier: Apache-2.0
// Matches messages that arrive over shared-memory rings with posted receives, and keeps messages that arrive early.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <replicator/core/error.hpp>
#include <replicator/transport/shared_ring.hpp>
#include <replicator/transport/transport.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// "collective 3, channel 0, instruction 7"
inline std::string slot_text(std::uint64_t slot) {
  return "collective " + std::to_string(slot >> 36) + ", channel " + std::to_string((slot >> 28) & 255) +
         ", instruction " + std::to_string(slot & ((1u << 28) - 1));
}

inline std::string size_mismatch(int source, const std::string& sent, int destination, std::size_t expected,
                                 std::uint64_t slot) {
  return "rank " + std::to_string(source) + " sent " + sent + " bytes (" + slot_text(slot) + "), but rank " +
         std::to_string(destination) + " expects " + std::to_string(expected) + ": their programs differ";
}

// The messages of one rank; used by one thread. A message travels as a header and its bytes, piece by piece as the ring has
// room. Whatever arrives is taken out at once, into its receive or into a buffer. So no ring stays full, and nothing can
// deadlock as long as both sides make progress.
class MessageMatcher {
 public:
  // incoming[p] is written by rank p; outgoing[p] is read by rank p. All rings must outlive this.
  MessageMatcher(int rank, std::vector<SharedRing*> incoming, std::vector<SharedRing*> outgoing)
      : rank_{rank}, incoming_{std::move(incoming)}, outgoing_{std::move(outgoing)}, peers_(incoming_.size()) {
    touched_.reserve(peers_.size());
  }

  Ticket send(std::span<const std::byte> out, int peer, Slot slot) {
    const auto index = open({out, {}, slot.value(), 0, false});
    at(peer).sending.push_back(index);
    return {index};
  }

  Ticket recv(std::span<std::byte> in, int peer, Slot slot) {
    const auto index = open({{}, in, slot.value(), 0, false});
    auto& aside = at(peer).aside;
    const auto found = std::find_if(aside.begin(), aside.end(), [&](const Aside& message) {
      return message.slot == slot.value() && message.receive == nobody;
    });
    if (found == aside.end()) {
      at(peer).receiving.push_back(index);
      return {index};
    }
    check_size(peer, found->bytes, in.size(), slot.value());
    found->receive = index;
    if (found->complete) hand_over(peer, found);
    return {index};
  }

  bool done(Ticket ticket) {
    if (!operations_[ticket.index].finished) return false;
    free_.push_back(ticket.index);
    return true;
  }

  // Moves what can be moved now. Returns the peers whose rings have changed. The list is valid until the next call.
  const std::vector<int>& progress() {
    touched_.clear();
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      const bool sent = push(p);
      const bool received = pull(p);
      if (sent || received) touched_.push_back(static_cast<int>(p));
    }
    return touched_;
  }

 private:
  static constexpr std::uint32_t nobody = 0xFFFFFFFF;

  struct Operation {
    std::span<const std::byte> out;
    std::span<std::byte> in;
    std::uint64_t slot = 0;
    std::size_t moved = 0;  // bytes; a send's include the header
    bool finished = false;
  };
  struct Header {
    std::uint64_t slot = 0;
    std::uint64_t bytes = 0;
  };
  // A message that came before its receive was posted. Its memory grows with the bytes that arrive, so a wrong length in
  // the header does no harm.
  struct Aside {
    std::uint64_t slot = 0;
    std::uint64_t bytes = 0;
    std::vector<std::byte> data;
    bool complete = false;
    std::uint32_t receive = nobody;
  };
  using AsideList = std::list<Aside>;
  struct Peer {
    std::deque<std::uint32_t> sending;
    std::vector<std::uint32_t> receiving;
    AsideList aside;
    // The message that is arriving: into an operation, or aside.
    bool arriving = false;
    std::uint64_t expected = 0;
    std::span<std::byte> target;
    std::size_t arrived = 0;
    std::uint32_t receive = nobody;
    AsideList::iterator into{};
  };

  Peer& at(int peer) { return peers_.at(static_cast<std::size_t>(peer)); }

  std::uint32_t open(Operation operation) {
    if (free_.empty()) {
      operations_.push_back(operation);
      return static_cast<std::uint32_t>(operations_.size() - 1);
    }
    const auto index = free_.back();
    free_.pop_back();
    operations_[index] = operation;
    return index;
  }

  bool push(std::size_t p) {
    auto& peer = peers_[p];
    SharedRing& ring = *outgoing_[p];
    bool moved = false;
    while (!peer.sending.empty()) {
      auto& operation = operations_[peer.sending.front()];
      const Header header{operation.slot, operation.out.size()};
      if (operation.moved == 0) {
        if (sound(p, room_in(ring)) < sizeof header) return moved;
        operation.moved = write_some(ring, std::as_bytes(std::span{&header, 1}));
        if (operation.moved != sizeof header) damaged(p);
        moved = true;
      }
      sound(p, room_in(ring));
      const auto n = write_some(ring, operation.out.subspan(operation.moved - sizeof header));
      operation.moved += n;
      moved = moved || n > 0;
      if (operation.moved < sizeof header + operation.out.size()) return moved;
      operation.finished = true;
      peer.sending.pop_front();
    }
    return moved;
  }

  bool pull(std::size_t p) {
    auto& peer = peers_[p];
    SharedRing& ring = *incoming_[p];
    bool moved = false;
    for (;;) {
      if (!peer.arriving) {
        Header header;
        if (sound(p, available_in(ring)) < sizeof header) return moved;
        if (read_some(ring, std::as_writable_bytes(std::span{&header, 1})) != sizeof header) damaged(p);
        begin(static_cast<int>(p), header);
        moved = true;
      }
      const auto available = sound(p, available_in(ring));
      if (peer.receive == nobody) {
        auto& data = peer.into->data;
        data.resize(static_cast<std::size_t>(std::min<std::uint64_t>(peer.expected, peer.arrived + available)));
        peer.target = data;
      }
      const auto n = read_some(ring, peer.target.subspan(peer.arrived));
      peer.arrived += n;
      moved = moved || n > 0;
      if (peer.arrived < peer.expected) return moved;
      finish(static_cast<int>(p));
    }
  }

  void begin(int from, Header header) {
    auto& peer = at(from);
    const auto found = std::find_if(peer.receiving.begin(), peer.receiving.end(),
                                    [&](std::uint32_t index) { return operations_[index].slot == header.slot; });
    if (found != peer.receiving.end()) {
      check_size(from, header.bytes, operations_[*found].in.size(), header.slot);
      peer.receive = *found;
      peer.target = operations_[*found].in;
      peer.receiving.erase(found);
    } else {
      peer.receive = nobody;
      peer.aside.push_back({header.slot, header.bytes, {}, false, nobody});
      peer.into = std::prev(peer.aside.end());
    }
    peer.expected = header.bytes;
    peer.arrived = 0;
    peer.arriving = true;
  }

  void finish(int from) {
    auto& peer = at(from);
    peer.arriving = false;
    if (peer.receive != nobody) {
      operations_[peer.receive].finished = true;
      return;
    }
    peer.into->complete = true;
    if (peer.into->receive != nobody) hand_over(from, peer.into);
  }

  void hand_over(int from, AsideList::iterator message) {
    auto& operation = operations_[message->receive];
    std::copy(message->data.begin(), message->data.end(), operation.in.begin());
    operation.finished = true;
    at(from).aside.erase(message);
  }

  // Returns `bytes`, a ring's content or room, after checking that it is possible.
  std::size_t sound(std::size_t peer, std::size_t bytes) const {
    if (bytes > SharedRing::capacity) damaged(peer);
    return bytes;
  }
  [[noreturn]] void damaged(std::size_t peer) const {
    throw CommunicationError{"the shared memory of rank " + std::to_string(rank_) + " is damaged: the ring that it shares with rank " +
                                 std::to_string(peer) + " counts more bytes than it can hold; one of them, or somebody else, wrote there by mistake",
                             -1};
  }

  void check_size(int source, std::size_t sent, std::size_t expected, std::uint64_t slot) const {
    if (sent != expected)
      throw CommunicationError{size_mismatch(source, std::to_string(sent), rank_, expected, slot), -1};
  }

  int rank_;
  std::vector<SharedRing*> incoming_;
  std::vector<SharedRing*> outgoing_;
  std::vector<Peer> peers_;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> free_;
  std::vector<int> touched_;  // by the latest progress()
};

}  // namespace replicator::detail::transport::detail
