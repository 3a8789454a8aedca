// SPDX-License-Identifier: Apache-2.0
// Runs any schedule. It is resolved to flat lines with absolute addresses beforehand (lane_program.hpp); a step walks
// through them.
//
// Where peers are writable, whoever computes a root of T stores it into the outputs of all; their copies become waits.
// That is less traffic between the caches than fetching it.
//
// Between steps: a rank writes its output and scratch again only when all who read them have finished the last step,
// and has itself finished only when all who read its inputs have, so that the caller may write the next ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <replicator/collectives/run/lane_program.hpp>
#include <replicator/collectives/run/prepared.hpp>
#include <replicator/collectives/run/push_copy.hpp>
#include <vector>

namespace replicator::detail::collectives::detail {

template <transport::Transport T>
class Runner final : public Prepared<T> {
  using Base = Prepared<T>;
  static constexpr bool readable = transport::PeerReadable<T>;
  static constexpr bool writable = transport::PeerWritable<T>;

 public:
  // `schedule` must be lowered where peers are not readable.
  Runner(T& transport, const CollectiveSpec& spec, const Schedule& schedule, int pieces)
      : Base{transport, spec, schedule, pieces, Base::with_more(transport, readable ? Words{schedule, pieces}.bytes() : 0)},
        id_{spec.id},
        me_{transport.rank()},
        program_{schedule, this->layout_, me_, memory(), writable && can_push(schedule)},
        to_caller_{!loads_outputs(schedule, writable && can_push(schedule))},
        inputs_once_{reads_inputs_once(schedule)} {
    if constexpr (writable)
      for (int k = 1; k < schedule.ranks(); ++k)
        peers_.push_back(transport.writable_peer(this->region_, (me_ + k) % schedule.ranks()));
    targets_ = peers_;
  }

  void start() override {
    this->require_idle(running_);
    give(pieces());
  }

  int pieces() const override { return this->layout_.pieces(); }
  void give(int count) override {
    if (!running_) {
      if (aimed_) aim({});
      aimed_ = false;
      begin();
    }
    let_go_on(count);
  }
  // Lanes lie piece by piece.
  int received() const override {
    for (const Lane& lane : program_.lanes)
      if (lane.next < lane.end) return lane.piece;
    return pieces();
  }

  bool start_on(const CallerBuffers& buffers) override {
    this->require_idle(running_);
    CallerBuffers mine = buffers;
    // Messages that are on their way when the job ends must not meet memory that the caller has given back.
    if (!readable && mine.input) {
      this->pack(this->region_.data + this->layout_.input(0), this->layout_.input(1), mine);
      mine.input = nullptr;
    }
    // Peers look for it in the region.
    if (!readable || !to_caller_) mine.output = nullptr;
    if (!mine.output || targets_.empty()) mine.outputs.clear();
    // A peer may want to read a value that has been overwritten.
    if (mine.in_place && !inputs_once_) mine.inputs.clear();
    aim(mine);
    aimed_ = true;
    program_.expose(mine);
    begin();
    let_go_on(pieces());
    return mine.output != nullptr;
  }

  bool advance() override {
    if (!running_) return true;
    this->transport_.progress();
    if (!cleared_ && blocker(program_.readers, base_ - program_.stride()) >= 0) return false;
    cleared_ = true;
    if (!done_) {
      done_ = advance_lanes() && given_ == pieces();
      if constexpr (readable) {
        if (done_) publish(program_.own_words() + Words::finished, base_ + 1);
        if (done_ || told_) this->transport_.notify();
        told_ = false;
      }
    }
    if (!done_ || blocker(program_.input_readers, base_) >= 0) return false;
    running_ = false;
    return true;
  }

 private:
  void begin() {
    base_ = step_++ * program_.stride();
    for (Lane& lane : program_.lanes) lane.next = lane.begin;
    cleared_ = program_.readers.empty() || step_ == 1;
    done_ = false;
    this->moved_ = 0;
    running_ = true;
  }
  void let_go_on(int pieces) {
    given_ = pieces;
    if constexpr (readable) {
      publish(program_.own_words() + Words::started, base_ + static_cast<std::uint64_t>(pieces));
      this->transport_.notify();
    }
  }

  void aim(const CallerBuffers& buffers) {
    program_.aim(buffers);
    for (std::size_t k = 0; k < targets_.size(); ++k)
      targets_[k] = buffers.outputs.empty() ? peers_[k] : buffers.outputs[(static_cast<std::size_t>(me_) + k + 1) % buffers.outputs.size()];
  }

  // The words lie behind the buffers.
  RankMemory memory() {
    const std::size_t end = this->layout_.end();
    RankMemory result{this->region_.data, this->region_.data + end, {}, {}};
    for (int rank = 0; rank < this->blocks_.ranks(); ++rank) {
      const std::byte* base = nullptr;
      if constexpr (readable) base = this->transport_.peer(this->region_, rank);
      result.bases.push_back(rank == me_ ? this->region_.data : base);
      result.words.push_back(result.bases.back() ? result.bases.back() + end : nullptr);
    }
    return result;
  }

  // The rank of the first wait that is not over, or -1.
  static int blocker(const std::vector<Wait>& waits, std::uint64_t base) {
    for (const Wait& wait : waits)
      if (observe(wait.word) < base + wait.offset) return wait.rank;
    return -1;
  }

  int blocker(const Line& line) const {
    for (std::size_t w = line.first_wait; w < line.first_wait + line.waits; ++w)
      if (observe(program_.waits[w].word) < base_ + program_.waits[w].offset) return program_.waits[w].rank;
    return -1;
  }

  // Until nothing moves: a lane may have waited for one behind it, and nobody wakes a rank for its own progress.
  bool advance_lanes() {
    for (;;) {
      bool all = true;
      moving_ = false;
      for (Lane& lane : program_.lanes) all = lane.piece < given_ && advance(lane) && all;
      if (all || !moving_) return all;
    }
  }

  bool advance(Lane& lane) {
    while (lane.next < lane.end) {
      Line& line = program_.lines[lane.next];
      if (!line.posted && blocker(line) >= 0) return false;
      if (!execute(lane, line)) return false;
      this->moved_ += this->layout_.bytes(line.elements);
      ++lane.next;
      moving_ = true;
      const std::uint64_t count = base_ + (lane.next - lane.begin);
      program_.progress[lane.local_word] = count;
      if constexpr (readable) {
        if (line.told) publish(lane.peer_word, count);
        told_ = told_ || line.told;
      }
    }
    return true;
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
    // Both ends know that an empty message is empty.
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

  // In tiles that stay in the first cache until they are stored everywhere, see push_copy.
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

  // Who has not even started; else whom the first stuck lane waits for.
  int missing_rank() const override {
    if constexpr (readable)
      for (int rank = 0; rank < this->blocks_.ranks(); ++rank)
        if (rank != me_ && observe(program_.words_of(rank) + Words::started) < base_ + 1) return rank;
    for (const Lane& lane : program_.lanes) {
      if (lane.next == lane.end) continue;
      const Line& line = program_.lines[lane.next];
      if (line.posted) return line.peer;
      if (const int rank = blocker(line); rank >= 0 && rank != me_) return rank;
    }
    if (!cleared_) return blocker(program_.readers, base_ - program_.stride());
    return blocker(program_.input_readers, base_);
  }

  std::uint32_t id_;
  int me_;
  LaneProgram program_;
  bool to_caller_;                   // nobody reads the output here
  bool inputs_once_;
  std::vector<std::byte*> peers_;    // the regions of the others, to store into
  std::vector<std::byte*> targets_;  // those, or the others' buffers
  bool aimed_ = false;               // at buffers of the caller's
  std::uint64_t step_ = 0;
  std::uint64_t base_ = 0;
  int given_ = 0;  // pieces whose inputs are written
  bool cleared_ = true;
  bool done_ = true;
  bool running_ = false;
  bool moving_ = false;  // a line was done in this round
  bool told_ = false;    // a peer's word was written since the last notify()
};

}  // namespace replicator::detail::collectives::detail
