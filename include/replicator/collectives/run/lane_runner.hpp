// SPDX-License-Identifier: Apache-2.0
// Walks through the lanes of a LaneProgram in each step: the common base of all ways to run a schedule.
//
// Between steps a rank waits:
// - It writes its output and scratch again only after all ranks that read them have finished the last step.
// - It has finished a step only after all readers of its inputs have. The caller may then write the next inputs.
// - It has finished a step only after all its messages have left the process. The caller may then stop making progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/collectives/run/lane_program.hpp>
#include <replicator/collectives/run/prepared_collective.hpp>
#include <span>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// `Runner` derives from it and provides:
//   signals                peers see this rank's words
//   execute(lane, line)    does the line, after its waits are over; false to be called again later
//   follow(waits)          is called for waits that are over, before the line that had them
//   mark()                 is called before peers are told what was done
//   named(work)            calls work(), and adds the collective's name to its errors
template <class Runner, transport::Transport T>
class LaneRunner : public Prepared<T> {
 public:
  bool advance() override {
    if (!this->running_) return true;
    this->transport_.progress();
    return runner().named([this] { return walk(); });
  }

 protected:
  // Calls allocate(bytes) for this rank's region. Then calls memory(region, end) for the regions and words of all ranks.
  // The buffers take the first `end` bytes of `region`. `pushing`: see LaneProgram.
  template <class Allocate, class Memory>
  LaneRunner(T& transport, const CollectiveSpec& spec, const Schedule& schedule, int pieces, Allocate allocate, Memory memory, bool pushing)
      : Prepared<T>{transport, spec, schedule, pieces, allocate},
        me_{transport.rank()},
        program_{schedule, this->layout_, me_, memory(this->region_, this->layout_.end()), pushing} {}

  void begin() {
    base_ = step_++ * program_.stride();
    for (Lane& lane : program_.lanes) lane.next = lane.begin;
    cleared_ = program_.readers.empty() || step_ == 1;
    done_ = false;
    this->moved_ = 0;
    this->running_ = true;
  }
  // Says that the inputs of the first `pieces` pieces are written.
  void let_go_on(int pieces) {
    given_ = pieces;
    if constexpr (Runner::signals) {
      tell(program_.own_words() + Words::started, static_cast<std::uint64_t>(pieces));
      this->transport_.notify();
    }
  }

  int me_;
  LaneProgram program_;

 private:
  Runner& runner() { return static_cast<Runner&>(*this); }

  bool walk() {
    if (!cleared_ && !passes(program_.readers, base_ - program_.stride())) return false;
    cleared_ = true;
    if (!done_) {
      done_ = advance_lanes() && given_ == this->layout_.pieces();
      if constexpr (Runner::signals) {
        if (done_) tell(program_.own_words() + Words::finished, 1);
        if (done_ || told_) this->transport_.notify();
        told_ = false;
      }
    }
    if (!done_ || !passes(program_.input_readers, base_) || !this->transport_.flushed()) return false;
    runner().mark();  // work behind the step comes behind those readers
    this->running_ = false;
    return true;
  }
  void tell(std::byte* word, std::uint64_t offset) {
    runner().mark();
    publish(word, base_ + offset);
  }

  // The rank of the first wait that is not over, or -1.
  static int blocker(std::span<const Wait> waits, std::uint64_t base) {
    for (const Wait& wait : waits)
      if (observe(wait.word) < base + wait.offset) return wait.rank;
    return -1;
  }
  std::span<const Wait> waits_of(const Line& line) const { return {program_.waits.data() + line.first_wait, line.waits}; }
  bool passes(std::span<const Wait> waits, std::uint64_t base) {
    if (blocker(waits, base) >= 0) return false;
    runner().follow(waits);
    return true;
  }

  // Repeats until nothing moves. A lane may have waited for one that comes later in the list, and no one wakes a rank for
  // its own progress.
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
      if (!line.posted && !passes(waits_of(line), base_)) return false;
      if (!runner().execute(lane, line)) return false;
      this->moved_ += this->layout_.bytes(line.elements);
      ++lane.next;
      moving_ = true;
      const auto offset = static_cast<std::uint64_t>(lane.next - lane.begin);
      program_.progress[lane.local_word] = base_ + offset;
      if constexpr (Runner::signals) {
        if (line.told) tell(lane.peer_word, offset);
        told_ = told_ || line.told;
      }
    }
    return true;
  }

  // The first rank that has not started the step; otherwise the rank that the first stuck lane waits for.
  int missing_rank() const override {
    if constexpr (Runner::signals)
      for (int rank = 0; rank < this->blocks_.ranks(); ++rank)
        if (rank != me_ && observe(program_.words_of(rank) + Words::started) < base_ + 1) return rank;
    for (const Lane& lane : program_.lanes) {
      if (lane.next == lane.end) continue;
      const Line& line = program_.lines[lane.next];
      if (line.posted) return line.peer;
      if (const int rank = blocker(waits_of(line), base_); rank >= 0 && rank != me_) return rank;
    }
    if (!cleared_) return blocker(program_.readers, base_ - program_.stride());
    if (const int rank = blocker(program_.input_readers, base_); rank >= 0) return rank;
    return this->transport_.unsent_to();
  }

  std::uint64_t step_ = 0;
  std::uint64_t base_ = 0;
  int given_ = 0;  // pieces whose inputs are written
  bool cleared_ = true;
  bool done_ = true;
  bool moving_ = false;  // a line was done in this round
  bool told_ = false;    // a peer's word was written since the last notify()
};

}  // namespace replicator::detail::collectives::detail
