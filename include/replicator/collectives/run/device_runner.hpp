// SPDX-License-Identifier: Apache-2.0
// Runs any schedule in device memory that the devices read from each other. The lines become work in a queue (stream) of
// the rank's device. A line is computed on the device of its destination. An operand on another rank is a load or a copy
// from there.
//
// The rank's thread walks through the lines as Runner does, but "done" means "queued". It queues a line once the lines that
// it waits for are queued on their ranks. The queue then waits for the marks of those ranks. So a queue waits only for work
// that is queued already. If a rank never comes, the threads of its peers wait until their deadline; no device is blocked.
#pragma once

#include <cstddef>
#include <replicator/collectives/run/device_failure.hpp>
#include <replicator/collectives/run/lane_runner.hpp>
#include <span>
#include <type_traits>

namespace replicator::detail::collectives::detail {

// Runs in one piece. A queue does one thing at a time, so pieces would overlap nothing.
template <transport::DeviceMemory T>
class DeviceRunner final : public LaneRunner<DeviceRunner<T>, T>, public DeviceCollective {
  using Base = LaneRunner<DeviceRunner<T>, T>;
  friend Base;
  static constexpr bool signals = true;

 public:
  DeviceRunner(T& transport, const CollectiveSpec& spec, const Schedule& schedule)
      : DeviceRunner{transport, spec, schedule, transport.allocate(Words{schedule, 1}.bytes())} {}
  ~DeviceRunner() override {
    this->transport_.release_on_device(this->region_);
    this->release_unless_running(words_);
  }

  DeviceCollective* on_device() override { return this; }

  void start() override { start_behind(nullptr); }
  void start_behind(void* queue) override {
    this->require_idle();
    this->begin();
    named([&] {
      if (queue) this->transport_.begin_behind(this->region_, queue);
      this->let_go_on(1);
    });
  }
  bool start_on(const CallerBuffers&) override {
    throw BuildError{this->name_ + ": on devices a collective works on its own buffers only: copy what it is given to input(i)"};
  }

  bool reached() const override { return this->transport_.begun(this->region_); }
  void precede(void* queue) override { this->transport_.precede(this->region_, queue); }
  bool done() const override { return this->transport_.marked(this->region_); }
  bool join_after_failure(void* queue) override {
    if (!T::between_processes) return false;
    mark();
    precede(queue);
    return true;
  }

 private:
  DeviceRunner(T& transport, const CollectiveSpec& spec, const Schedule& schedule, transport::Region words)
      : Base{transport, spec, schedule, 1, [&](std::size_t bytes) { return transport.allocate_on_device(bytes); },
             [&](const transport::Region& region, std::size_t) { return memory(transport, region, words); }, false},
        words_{words} {}

  static RankMemory memory(T& transport, const transport::Region& region, const transport::Region& words) {
    RankMemory result{region.data, words.data, {}, {}};
    for (int rank = 0; rank < transport.size(); ++rank) {
      result.bases.push_back(transport.device_peer(region, rank));
      result.words.push_back(transport.peer(words, rank));
    }
    return result;
  }

  // Sets the mark before peers see the word, so that they find it.
  void mark() { this->transport_.mark(this->region_); }
  // The waits are over: that work is queued. Makes the queue wait for it.
  void follow(std::span<const Wait> waits) {
    for (const Wait& wait : waits)
      if (wait.rank != this->me_) this->transport_.wait_for_mark(this->region_, wait.rank);
  }
  // As Arithmetic::run, in the queue.
  bool execute(const Lane&, const Line& line) {
    if (line.elements == 0) return true;
    const auto& support = this->transport_.support();
    const auto& arithmetic = this->arithmetic_;
    void* const queue = this->transport_.queue(this->region_);
    if (line.action == Action::reduce)
      support.fold(queue, arithmetic.dtype, arithmetic.reduction, line.dst, line.left, line.right, line.elements);
    else if (line.dst != line.left)
      support.copy(queue, line.dst, line.left, this->layout_.bytes(line.elements));
    if (line.root)
      support.peers->finish(queue, arithmetic.dtype, arithmetic.reduction, line.dst, line.elements, arithmetic.replicas);
    return true;
  }

  template <class Work>
  std::invoke_result_t<Work&> named(Work work) const {
    return detail::named(this->name_, this->blocks_, this->me_, this->transport_.device_index(), work);
  }

  transport::Region words_;  // in host memory
};

}  // namespace replicator::detail::collectives::detail
