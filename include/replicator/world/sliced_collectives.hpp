// SPDX-License-Identifier: Apache-2.0
// Runs collectives on buffers of any length and at any address, in bounded memory. A call is cut into slices: the same part
// of every block. Each slice goes through a collective that was prepared for its size.
//
// Local computation reads and writes the caller's buffers. Only data that peers read, and data from peers, is copied. Where
// the buffers were allocated here, nothing is copied.
//
//   block: | window | window | ... | 2^k | 2^j | rest |       a slice has at most 64 KiB more room than it needs
//
// Sums follow T for each element separately, so slices change no bits. Several windows are in flight at once: a rank that
// waits for one has already prepared the next ones for its peers.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <replicator/collectives/choose/choice.hpp>
#include <replicator/collectives/run/caller_buffers.hpp>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/run/local_fold.hpp>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/world/raw_call.hpp>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

// Belongs to one thread; the communicator must outlive it. Every rank makes the same calls in the same order.
class SlicedCollectives {
 public:
  // `window`: bytes that a replica contributes at once; equal on every rank.
  SlicedCollectives(Communicator& communicator, std::size_t window)
      : communicator_{communicator},
        window_{window},
        fold_{communicator.blocks().replicas(), communicator.blocks().begin(communicator.rank()),
              communicator.blocks().end(communicator.rank())},
        temporaries_(static_cast<std::size_t>(fold_.temporaries())) {
    const ReplicaBlocks& blocks = communicator.blocks();
    for (int rank = 0; rank < blocks.ranks(); ++rank)
      alike_ = alike_ && blocks.count(rank) == blocks.count(0) &&
               maximal_subtrees(blocks.replicas(), blocks.begin(rank), blocks.end(rank)).size() == static_cast<std::size_t>(blocks.count(rank));
  }

  // Allocates memory that peers reach, see Communicator::allocate. Null where there is none.
  std::byte* allocate(std::size_t bytes) {
    auto by_rank = communicator_.allocate(bytes);
    if (by_rank.empty()) return nullptr;
    std::byte* const mine = by_rank[static_cast<std::size_t>(communicator_.rank())];
    allocations_.push_back({std::move(by_rank), mine, bytes});
    return mine;
  }
  // The place of a buffer in that memory: the number of its allocation, from 1, and the byte offset in it. Returns {0, 0}
  // for other memory. Must be equal on all ranks.
  std::pair<std::size_t, std::size_t> place_of(const std::byte* buffer) const {
    for (std::size_t k = 0; k < allocations_.size(); ++k) {
      const auto offset = reinterpret_cast<std::uintptr_t>(buffer) - reinterpret_cast<std::uintptr_t>(allocations_[k].data);
      if (offset < allocations_[k].bytes) return {k + 1, offset};
    }
    return {0, 0};
  }

  // Runs one call, which must be valid. Throws CommunicationError at the deadline of a slice, or when the job is aborted.
  // **Run nothing afterwards.**
  void run(const RawCall& call, transport::Clock::duration deadline) {
    const std::size_t largest = largest_room(call);
    for (std::size_t at = 0; at < call.block();) {
      const std::size_t rest = call.block() - at;
      const std::size_t room = room_for(rest, largest);
      begin(call, {at, std::min(rest, room), room}, deadline);
      at += room;
    }
    while (!flights_.empty()) land(call, deadline);
  }

 private:
  struct Slice {
    std::size_t begin;  // in each block
    std::size_t bytes;
    std::size_t room;  // the size that was prepared
  };
  struct Flight {
    Collective* collective;
    Slice slice;
    bool delivered;  // the collective writes its output to the caller's buffer
  };
  struct Allocation {
    std::vector<std::byte*> by_rank;
    std::byte* data;
    std::size_t bytes;
  };
  // The key of a prepared collective: calls with equal keys can share it.
  struct Use {
    Kind kind;
    DType dtype;
    Reduction reduction;
    bool any_order;
    int root;
    std::size_t room;
    friend auto operator<=>(const Use&, const Use&) = default;
  };
  static constexpr std::size_t least_room = 64;
  static constexpr std::size_t fine = 64 * 1024;
  static constexpr std::size_t sooner_copied = 1024;  // up to this many bytes, a copy is faster than telling peers where to reach them
  static constexpr std::size_t most_windows = 4;      // in flight

  // The largest slice of a block, a power of two. What a replica contributes or receives then fits the window.
  std::size_t largest_room(const RawCall& call) const {
    const bool many = call.kind != Kind::all_reduce && call.kind != Kind::broadcast;
    const std::size_t blocks = many ? static_cast<std::size_t>(communicator_.blocks().replicas()) : 1;
    return std::bit_floor(std::max(window_ / blocks, least_room));
  }
  static std::size_t room_for(std::size_t rest, std::size_t largest) {
    if (rest >= largest) return largest;
    if (rest > fine) return std::bit_floor(rest);
    std::size_t room = least_room;
    while (room < rest) room *= room < 16 * 1024 ? 4 : 2;
    return std::min(room, largest);
  }

  void begin(const RawCall& call, const Slice& slice, transport::Clock::duration deadline) {
    Collective& collective = idle(call, slice.room, deadline);
    for (const Flight& flight : flights_) flight.collective->advance();
    const CallerBuffers buffers = caller_buffers(call, slice);
    if (!buffers.input) copy_in(call, slice, collective);
    flights_.push_back({&collective, slice, collective.start_on(buffers)});
  }

  void land(const RawCall& call, transport::Clock::duration deadline) {
    const Flight flight = flights_.front();
    if (!flight.collective->advance())
      flight.collective->wait(DeadlineWait{{.deadline = deadline}}.deadline());
    if (!flight.delivered) copy_out(call, flight.slice, *flight.collective);
    flights_.pop_front();
  }

  bool flying(const Collective* collective) const {
    return std::any_of(flights_.begin(), flights_.end(), [&](const Flight& f) { return f.collective == collective; });
  }

  // A collective that is prepared for this size and not in flight. Every rank makes the same choice.
  Collective& idle(const RawCall& call, std::size_t room, transport::Clock::duration deadline) {
    const Use asked = use(call, room);
    if (!last_ || last_->first != asked) last_ = &*prepared_.try_emplace(asked).first;
    auto& prepared = last_->second;
    for (;;) {
      for (const auto& collective : prepared)
        if (!flying(collective.get())) return *collective;
      if (prepared.size() < most_windows) return *prepared.emplace_back(prepare(call, room));
      land(call, deadline);
    }
  }

  // Collectives that do not reduce move plain bytes.
  static Use use(const RawCall& call, std::size_t room) {
    if (reduces(call.kind)) return {call.kind, call.dtype, call.reduction, call.any_order, 0, room};
    return {call.kind, DType::uint8, Reduction::sum, false, call.kind == Kind::broadcast ? call.root : 0, room};
  }

  // The parts of the caller's buffers on which the collective may work directly.
  CallerBuffers caller_buffers(const RawCall& call, const Slice& slice) const {
    const std::size_t element = reduces(call.kind) ? size_of(call.dtype) : 1;
    const auto aligned = [element](const std::byte* buffer) { return reinterpret_cast<std::uintptr_t>(buffer) % element == 0; };
    CallerBuffers result;
    result.stride = call.block();
    result.elements = static_cast<std::int64_t>(slice.bytes / element);
    result.in_place = call.overlaps(communicator_.blocks(), communicator_.rank());
    if (works_on_input(call, result.in_place) && aligned(call.input)) {
      result.input = call.input + slice.begin;
      if (alike_ && call.kind != Kind::broadcast) result.inputs = reached<const std::byte*>(call.input, slice);
    }
    if (aligned(call.output)) {
      result.output = call.output + slice.begin;
      result.outputs = reached<std::byte*>(call.output, slice);
    }
    return result;
  }

  bool works_on_input(const RawCall& call, bool in_place) const {
    const ReplicaBlocks& blocks = communicator_.blocks();
    const int here = blocks.count(communicator_.rank());
    // Partials of several replicas are folded first.
    if (reduces(call.kind) && fold_.partials().size() != static_cast<std::size_t>(here)) return false;
    if (call.kind == Kind::broadcast)
      return here == 1 && blocks.rank_of(call.root) == communicator_.rank() && (!in_place || call.input == call.output);
    return !in_place || call.kind == Kind::all_reduce;
  }

  // The addresses of this slice on every rank, where the buffer lies in memory that was allocated here.
  template <class Pointer>
  std::vector<Pointer> reached(const std::byte* buffer, const Slice& slice) const {
    std::vector<Pointer> result;
    if (slice.bytes <= sooner_copied) return result;
    const auto [allocation, offset] = place_of(buffer);
    if (allocation > 0)
      for (std::byte* memory : allocations_[allocation - 1].by_rank) result.push_back(memory + offset + slice.begin);
    return result;
  }

  std::unique_ptr<Collective> prepare(const RawCall& call, std::size_t room) {
    const Use asked = use(call, room);
    CollectiveSpec spec;
    spec.kind = asked.kind;
    spec.dtype = asked.dtype;
    spec.reduction = asked.reduction;
    spec.elements = static_cast<std::int64_t>(room / size_of(asked.dtype));
    spec.root = asked.root;
    spec.any_order = asked.any_order;
    spec.id = next_id_++;
    // `direct` reads the caller's buffers once. Other schedules copy them into the transport's memory first, and out of it
    // again. So it gets the size limit that otherwise holds where ranks outnumber cores. Between two ranks it was as fast
    // up to 32 KiB.
    const auto latency = std::max(communicator_.latency(), transport::Latency::crowded_memory);
    const Choice choice = choose(asked.kind, static_cast<std::int64_t>(room), communicator_.blocks(), asked.root, asked.any_order, {}, {}, latency);
    return communicator_.prepare(spec, choice.schedule);
  }

  // Bytes behind the slice in its room keep old values. Nothing reads what becomes of them.
  void copy_in(const RawCall& call, const Slice& slice, Collective& collective) {
    const ReplicaBlocks& blocks = communicator_.blocks();
    const int first = blocks.begin(communicator_.rank());
    if (reduces(call.kind)) return fold_in(call, slice, collective);
    for (int index = 0; index < blocks.count(communicator_.rank()); ++index) {
      if (call.kind != Kind::broadcast)
        copy_blocks(call, slice, index, collective.input(index));
      else if (first + index == call.root)
        copy_blocks(call, slice, 0, collective.input(index));
    }
  }

  void fold_in(const RawCall& call, const Slice& slice, Collective& collective) {
    const auto blocks = static_cast<std::size_t>(call.input_blocks(communicator_.blocks()));
    const auto elements = static_cast<std::int64_t>(blocks * slice.room / size_of(call.dtype));
    for (auto& temporary : temporaries_)
      if (temporary.size() < blocks * slice.room) temporary.resize(blocks * slice.room);
    const auto buffer = [&](int index) {
      if (index < collective.inputs()) return collective.input(index);
      return temporaries_[static_cast<std::size_t>(index - collective.inputs())].data();
    };
    int index = 0;
    for (const LocalFold::Leaf& leaf : fold_.leaves()) {
      copy_blocks(call, slice, index++, buffer(leaf.buffer));
      for (const LocalFold::Fold& fold : leaf.folds)
        combine(call.dtype, call.reduction, buffer(fold.into), buffer(fold.into), buffer(fold.from), elements);
    }
  }

  // Copies the slice of all blocks of the `index`-th local replica's input.
  void copy_blocks(const RawCall& call, const Slice& slice, int index, std::byte* to) const {
    const std::int64_t blocks = call.input_blocks(communicator_.blocks());
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto from = static_cast<std::size_t>(index * blocks + block) * call.block() + slice.begin;
      std::memcpy(to + static_cast<std::size_t>(block) * slice.room, call.input + from, slice.bytes);
    }
  }

  void copy_out(const RawCall& call, const Slice& slice, Collective& collective) const {
    const auto blocks = static_cast<std::size_t>(call.output_blocks(communicator_.blocks(), communicator_.rank()));
    for (std::size_t block = 0; block < blocks; ++block)
      std::memcpy(call.output + block * call.block() + slice.begin, collective.output() + block * slice.room,
                  slice.bytes);
  }

  Communicator& communicator_;
  std::size_t window_;
  LocalFold fold_;
  std::vector<std::vector<std::byte>> temporaries_;
  std::uint32_t next_id_ = 0;
  using Prepared = std::map<Use, std::vector<std::unique_ptr<Collective>>>;
  Prepared prepared_;
  Prepared::value_type* last_ = nullptr;  // last used; consecutive calls are often equal
  std::deque<Flight> flights_;
  std::vector<Allocation> allocations_;
  bool alike_ = true;  // all ranks have equally many replicas and fold none of them
};

}  // namespace replicator::detail::collectives
