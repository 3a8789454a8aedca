// SPDX-License-Identifier: Apache-2.0
// Runs any schedule on host memory. The schedule is resolved to flat lines with absolute addresses beforehand
// (lane_program.hpp); a step walks through the lines (lane_runner.hpp).
//
// Where peers are writable, the rank that computes a root of T stores it into the outputs of all ranks. Their copies become
// mere waits. That causes less traffic between the caches than fetching the root.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <replicator/collectives/run/lane_runner.hpp>
#include <replicator/collectives/run/push_copy.hpp>
#include <span>
#include <vector>

namespace replicator::detail::collectives::detail {

template <transport::Transport T>
class Runner final : public LaneRunner<Runner<T>, T> {
  using Base = LaneRunner<Runner<T>, T>;
  friend Base;
  static constexpr bool readable = transport::PeerReadable<T>;
  static constexpr bool writable = transport::PeerWritable<T>;
  static constexpr bool signals = readable;

 public:
  // `schedule` must be lowered where peers are not readable.
  Runner(T& transport, const CollectiveSpec& spec, const Schedule& schedule, int pieces)
      : Base{transport, spec, schedule, pieces, Base::with_more(transport, readable ? Words{schedule, pieces}.bytes() : 0),
             [&](const transport::Region& region, std::size_t end) { return memory(transport, region, end); }, writable && can_push(schedule)},
        id_{spec.id},
        to_caller_{!loads_outputs(schedule, writable && can_push(schedule))},
        inputs_once_{reads_inputs_once(schedule)} {
    if constexpr (writable)
      for (int k = 1; k < schedule.ranks(); ++k)
        peers_.push_back(transport.writable_peer(this->region_, (this->me_ + k) % schedule.ranks()));
    targets_ = peers_;
  }
  ~Runner() override { this->release_unless_running(this->region_); }

  void start() override {
    this->require_idle();
    give(pieces());
  }

  int pieces() const override { return this->layout_.pieces(); }
  void give(int count) override {
    if (!this->running_) {
      if (aimed_) aim({});
      aimed_ = false;
      this->begin();
    }
    this->let_go_on(count);
  }
  // Lanes are sorted by piece, so the first unfinished lane tells.
  int received() const override {
    for (const Lane& lane : this->program_.lanes)
      if (lane.next < lane.end) return lane.piece;
    return pieces();
  }

  bool start_on(const CallerBuffers& buffers) override {
    this->require_idle();
    CallerBuffers mine = buffers;
    // When the job fails, messages may still be in flight. They must not read memory that the caller has freed.
    if (!readable && mine.input) {
      this->pack(this->region_.data + this->layout_.input(0), this->layout_.input(1), mine);
      mine.input = nullptr;
    }
    // Peers look for the output in the region, and messages arrive there.
    if (!readable || !to_caller_) mine.output = nullptr;
    if (!mine.output || targets_.empty()) mine.outputs.clear();
    // A peer may need to read a value that has been overwritten.
    if (mine.in_place && !inputs_once_) mine.inputs.clear();
    aim(mine);
    aimed_ = true;
    this->program_.expose(mine);
    this->begin();
    this->let_go_on(pieces());
    return mine.output != nullptr;
  }

 private:
  template <class Work>
  static bool named(Work work) {
    return work();
  }
  static void mark() {}
  static void follow(std::span<const Wait>) {}

  void aim(const CallerBuffers& buffers) {
    this->program_.aim(buffers);
    for (std::size_t k = 0; k < targets_.size(); ++k)
      targets_[k] = buffers.outputs.empty() ? peers_[k] : buffers.outputs[(static_cast<std::size_t>(this->me_) + k + 1) % buffers.outputs.size()];
  }

  // The words lie behind the buffers.
  static RankMemory memory(T& transport, const transport::Region& region, std::size_t end) {
    const int me = transport.rank();
    RankMemory result{region.data, region.data + end, {}, {}};
    for (int rank = 0; rank < transport.size(); ++rank) {
      const std::byte* base = nullptr;
      if constexpr (readable) base = transport.peer(region, rank);
      result.bases.push_back(rank == me ? region.data : base);
      result.words.push_back(result.bases.back() ? result.bases.back() + end : nullptr);
    }
    return result;
  }

  bool execute(const Lane& lane, Line& line) {
    if (line.push) {
      push(line);
      return true;
    }
    if (line.action == Action::copy || line.action == Action::reduce) {
      this->arithmetic_.run(line.action, line.dst, line.left, line.right, line.elements, line.root);
      return true;
    }
    // Both ends know that the message is empty, and skip it.
    if (line.elements == 0) return true;
    if (!line.posted) {
      const transport::Slot slot{id_, static_cast<std::uint32_t>(lane.piece),
                                 static_cast<std::uint32_t>(line.slot_ordinal)};
      const std::size_t bytes = this->layout_.bytes(line.elements);
      line.ticket = line.action == Action::send ? this->transport_.send({line.left, bytes}, line.peer, slot)
                                                : this->transport_.recv({line.dst, bytes}, line.peer, slot);
      line.posted = true;
    }
    if (!this->transport_.done(line.ticket)) return false;
    line.posted = false;
    return true;
  }

  // Works in tiles that stay in the first cache until they are stored to all ranks, see push_copy.
  void push(const Line& line) {
    const std::size_t size = size_of(this->arithmetic_.dtype);
    const std::size_t total = static_cast<std::size_t>(line.elements) * size;
    for (std::size_t at = 0; at < total; at += push_tile_bytes) {
      const std::size_t bytes = std::min(push_tile_bytes, total - at);
      this->arithmetic_.run(line.action, line.dst + at, line.left + at, line.right + at,
                            static_cast<std::int64_t>(bytes / size), line.root);
      for (std::byte* peer : targets_) push_copy(peer + line.pushed_at + at, line.dst + at, bytes);
    }
  }

  std::uint32_t id_;
  bool to_caller_;  // no rank reads the output here
  bool inputs_once_;
  std::vector<std::byte*> peers_;    // regions of the other ranks, to store into
  std::vector<std::byte*> targets_;  // those regions, or the others' buffers
  bool aimed_ = false;               // at buffers of the caller
};

}  // namespace replicator::detail::collectives::detail
