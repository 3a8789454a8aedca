// SPDX-License-Identifier: Apache-2.0
// Runs any schedule in the memory of devices that read each other's: its lines are work of a queue of the rank's device, combined where their
// destination is, an operand on another rank being a load or a copy from there.
//
// The rank's thread goes through the lines as Runner does, but "done" means "queued": it gives a line to the queue when the lines that it
// waits for have been queued by their ranks, behind marks of theirs. So a queue waits only for what is queued already; were a rank never to
// come, its peers' threads would wait, until their deadline, and no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/collectives/run/device_failure.hpp>
#include <replicator/collectives/run/lane_program.hpp>
#include <replicator/collectives/run/prepared.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace replicator::detail::collectives::detail {

// In one piece: a queue does one thing at a time, so pieces would overlap nothing.
template <transport::DeviceMemory T>
class DeviceRunner final : public Prepared<T>, public DeviceCollective {
  using Base = Prepared<T>;

 public:
  DeviceRunner(T& transport, const CollectiveSpec& spec, const Schedule& schedule)
      : Base{transport, spec, schedule, 1, [&](std::size_t bytes) { return transport.allocate_on_device(bytes); }},
        me_{transport.rank()},
        words_{transport.allocate(Words{schedule, 1}.bytes())},
        program_{schedule, this->layout_, me_, memory(), false} {}

  ~DeviceRunner() override { this->transport_.release_on_device(this->region_); }
  DeviceRunner(const DeviceRunner&) = delete;
  DeviceRunner& operator=(const DeviceRunner&) = delete;

  DeviceCollective* on_device() override { return this; }

  void start() override { begin(nullptr); }
  void start_behind(void* queue) override { begin(queue); }
  bool start_on(const CallerBuffers&) override {
    throw BuildError{this->name_ + ": on devices a collective works on its own buffers only: copy what it is given to input(i)"};
  }

  bool advance() override {
    if (!running_) return true;
    this->transport_.progress();
    return named([this] { return queue_up(); });
  }

  bool reached() const override { return this->transport_.begun(this->region_); }
  void precede(void* queue) override { this->transport_.precede(this->region_, queue); }
  bool done() const override { return this->transport_.marked(this->region_); }

 private:
  RankMemory memory() {
    RankMemory result{this->region_.data, words_.data, {}, {}};
    for (int rank = 0; rank < this->blocks_.ranks(); ++rank) {
      result.bases.push_back(this->transport_.device_peer(this->region_, rank));
      result.words.push_back(this->transport_.peer(words_, rank));
    }
    return result;
  }

  void begin(void* behind) {
    this->require_idle(running_);
    base_ = step_++ * program_.stride();
    for (Lane& lane : program_.lanes) lane.next = lane.begin;
    cleared_ = step_ == 1;
    done_ = false;
    this->moved_ = 0;
    running_ = true;
    named([&] {
      if (behind) this->transport_.begin_behind(this->region_, behind);
      tell(program_.own_words() + Words::started, 1);
    });
    this->transport_.notify();
  }

  bool queue_up() {
    if (!cleared_ && !follow(program_.readers, base_ - program_.stride())) return false;
    cleared_ = true;
    if (!done_) {
      done_ = queue_lanes();
      if (done_) tell(program_.own_words() + Words::finished, 1);
      if (done_ || told_) this->transport_.notify();
      told_ = false;
    }
    if (!done_ || !follow(program_.input_readers, base_)) return false;
    this->transport_.mark(this->region_);  // who comes behind the step comes behind those readers
    running_ = false;
    return true;
  }

  // Peers who see the word find the mark set.
  void tell(std::byte* word, std::uint64_t offset) {
    this->transport_.mark(this->region_);
    publish(word, base_ + offset);
  }

  // The rank of the first wait that is not over, or -1.
  static int blocker(const Wait* waits, std::size_t count, std::uint64_t base) {
    for (std::size_t w = 0; w < count; ++w)
      if (observe(waits[w].word) < base + waits[w].offset) return waits[w].rank;
    return -1;
  }
  const Wait* waits_of(const Line& line) const { return program_.waits.data() + line.first_wait; }

  // False where some of them are not queued yet; else the queue goes on behind them.
  bool follow(const Wait* waits, std::size_t count, std::uint64_t base) {
    if (blocker(waits, count, base) >= 0) return false;
    for (std::size_t w = 0; w < count; ++w)
      if (waits[w].rank != me_) this->transport_.wait_for_mark(this->region_, waits[w].rank);
    return true;
  }
  bool follow(const std::vector<Wait>& waits, std::uint64_t base) { return follow(waits.data(), waits.size(), base); }

  // Until nothing moves: a lane may have waited for one behind it.
  bool queue_lanes() {
    for (;;) {
      bool all = true, moved = false;
      for (Lane& lane : program_.lanes) all = queue_lane(lane, moved) && all;
      if (all || !moved) return all;
    }
  }
  bool queue_lane(Lane& lane, bool& moved) {
    while (lane.next < lane.end) {
      const Line& line = program_.lines[lane.next];
      if (!follow(waits_of(line), line.waits, base_)) return false;
      enqueue(line);
      this->moved_ += this->layout_.bytes(line.elements);
      ++lane.next;
      moved = true;
      const auto offset = static_cast<std::uint64_t>(lane.next - lane.begin);
      program_.progress[lane.local_word] = base_ + offset;
      if (line.told) tell(lane.peer_word, offset);
      told_ = told_ || line.told;
    }
    return true;
  }

  // As Arithmetic::run, in the queue.
  void enqueue(const Line& line) {
    if (line.elements == 0) return;
    const auto& support = this->transport_.support();
    const auto& arithmetic = this->arithmetic_;
    void* const queue = this->transport_.queue(this->region_);
    if (line.action == Action::reduce)
      support.fold(queue, arithmetic.dtype, arithmetic.reduction, line.dst, line.left, line.right, line.elements);
    else if (line.dst != line.left)
      support.copy(queue, line.dst, line.left, this->layout_.bytes(line.elements));
    if (line.root)
      support.peers->finish(queue, arithmetic.dtype, arithmetic.reduction, line.dst, line.elements, arithmetic.replicas);
  }

  template <class Work>
  std::invoke_result_t<Work&> named(Work work) const {
    return detail::named(this->name_, this->blocks_, me_, this->transport_.device_index(), work);
  }

  // Who has not even started; else whom the first stuck lane waits for.
  int missing_rank() const override {
    for (int rank = 0; rank < this->blocks_.ranks(); ++rank)
      if (rank != me_ && observe(program_.words_of(rank) + Words::started) < base_ + 1) return rank;
    for (const Lane& lane : program_.lanes) {
      if (lane.next == lane.end) continue;
      const Line& line = program_.lines[lane.next];
      if (const int rank = blocker(waits_of(line), line.waits, base_); rank >= 0 && rank != me_) return rank;
    }
    if (!cleared_) return blocker(program_.readers.data(), program_.readers.size(), base_ - program_.stride());
    return blocker(program_.input_readers.data(), program_.input_readers.size(), base_);
  }

  int me_;
  transport::Region words_;
  LaneProgram program_;
  std::uint64_t step_ = 0;
  std::uint64_t base_ = 0;
  bool cleared_ = true;
  bool done_ = true;
  bool running_ = false;
  bool told_ = false;  // a peer's word was written since the last notify()
};

}  // namespace replicator::detail::collectives::detail
