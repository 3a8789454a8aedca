// SPDX-License-Identifier: Apache-2.0
// StagedCollective: a collective in host memory for a device with its own memory. It copies and communicates at the
// same time, in pieces:
//
//   device's inputs  --out-->  host's inputs  --network-->  host's output  --home-->  device's output
//   piece k + 1                piece k                                                piece k - 1
//
// The host never waits for a copy, and no queue waits for the network. A copy is queued as soon as its source is
// written, or the work that writes it is queued. A call of advance() checks which copies are done, and gives those
// pieces to the network.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/run/device_failure.hpp>
#include <replicator/core/error.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/runtime/arena.hpp>
#include <replicator/runtime/execution_options.hpp>
#include <replicator/runtime/host_memory.hpp>
#include <replicator/runtime/queue.hpp>

namespace replicator::detail {

// The smallest block worth a copy of its own. It takes 20 to 40 us on a GPU's bus, a few times the cost of queueing it.
inline constexpr std::size_t least_copied_bytes = std::size_t{1} << 20;

// The copy queues between a device and the host: one for each direction, so that both run at once.
struct CopyQueues {
  const DeviceSupport& support;
  const int index;
  const std::size_t least_bytes;  // smallest part of a block in one copy, except the last
  const Queue out{support, index}, home{support, index};
};

class StagedCollective final : public collectives::Collective, public collectives::DeviceCollective {
 public:
  // `on_host`: prepared for `spec` and `schedule` by `communicator`. `communicator` and `copies` outlive this object.
  // Throws DeviceError if the device has not enough memory.
  StagedCollective(std::unique_ptr<collectives::Collective> on_host, collectives::Communicator& communicator, const collectives::CollectiveSpec& spec,
                   const collectives::Schedule& schedule, const CopyQueues& copies)
      : host_{std::move(on_host)}, communicator_{communicator}, name_{spec.name}, copies_{copies}, element_{size_of(spec.dtype)}, block_{static_cast<std::size_t>(spec.elements) * element_}, input_blocks_{static_cast<std::size_t>(schedule.input_blocks())}, output_blocks_{static_cast<std::size_t>(schedule.output_blocks(communicator.rank()))}, pinned_{*copies.support.staging, host_->input(0), host_->bytes()}, memory_{copies.support, copies.index, std::max<std::size_t>(output_at() + output_blocks_ * block_, 1)}, begun_{copies.support, copies.index}, home_{copies.support, copies.index} {
    cut(spec.elements);
  }
  StagedCollective(const StagedCollective&) = delete;
  StagedCollective& operator=(const StagedCollective&) = delete;
  // Waits for copies in flight, which a failed step may have left.
  ~StagedCollective() override {
    for (const Queue* queue : {&copies_.out, &copies_.home}) {
      try {
        queue->synchronise();
      } catch (const DeviceError&) {  // the step has reported it
      }
    }
  }

  int inputs() const override { return host_->inputs(); }
  std::byte* input(int index) override { return memory_.data() + static_cast<std::size_t>(index) * input_bytes(); }
  std::byte* output() override { return memory_.data() + output_at(); }
  std::size_t bytes() const override { return memory_.bytes(); }
  DeviceCollective* on_device() override { return this; }

  void start() override { begin(nullptr); }
  void start_behind(void* queue) override { begin(queue); }
  bool start_on(const collectives::CallerBuffers&) override {
    throw BuildError{name_ + ": on devices a collective works on its own buffers only: copy what it is given to input(i)"};
  }
  bool advance() override {
    if (!running_) return true;
    named([&] { give_copied(); });
    if (given_ == 0) {
      communicator_.check();
      return false;
    }
    const bool all_received = host_->advance() && all_given();
    named([&] { bring_home(all_received ? host_->pieces() : host_->received()); });
    running_ = !all_received;
    return all_received;
  }
  bool reached() const override { return begun_.happened(); }
  void precede(void* queue) override { home_.precede(queue); }
  bool done() const override { return home_.happened(); }

  void wait(transport::Clock::time_point deadline) override {
    if (wait_until(deadline, {})) return;
    if (all_given()) {
      host_->wait(deadline == transport::Clock::time_point::max() ? deadline : deadline + others_first);
      if (advance()) return;
    }
    copies_.support.abandon();
    throw CommunicationError{name_ + ": rank " + std::to_string(communicator_.rank()) + " waited until the deadline for its own device " +
                                 std::to_string(copies_.index) +
                                 ", which computes what it contributes: it hangs or is slow; look there, or allow more time "
                                 "with --deadline",
                             communicator_.rank()};
  }
  bool wait_until(transport::Clock::time_point time, const std::function<void()>& beside) override {
    const auto meanwhile = [&] {
      if (beside) beside();
      named([&] { bring_home(host_->received()); });
    };
    while (!advance()) {
      if (transport::Clock::now() >= time) return false;
      if (all_given()) {
        host_->wait_until(time, meanwhile);
      } else {  // a finished copy does not wake the host, so it polls
        if (beside) beside();
        ::sched_yield();
      }
    }
    return true;
  }
  // While inputs are still copied from the device, the missing rank is this one.
  Missing missing() const override { return all_given() ? host_->missing() : Missing{communicator_.rank(), 0}; }
  collectives::HostPart host_part() const override {
    return {output_blocks_ * block_, static_cast<std::size_t>(inputs()) * input_blocks_ * block_, host_->bytes()};
  }

 private:
  // Consecutive pieces: their part of each block, and an event for the arrival of their inputs on the host.
  struct Span {
    int end;  // one past its last piece
    std::size_t from, bytes;
    Event out;
  };

  static constexpr std::size_t rounded(std::size_t bytes) { return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment; }
  std::size_t input_bytes() const { return rounded(input_blocks_ * block_); }
  std::size_t output_at() const { return static_cast<std::size_t>(host_->inputs()) * input_bytes(); }

  void cut(std::int64_t elements) {
    const int pieces = host_->pieces();
    std::size_t from = 0;
    for (int piece = 1; piece <= pieces; ++piece) {
      const auto to = static_cast<std::size_t>(collectives::part_begin(elements, pieces, piece)) * element_;
      if (piece < pieces && to - from < copies_.least_bytes) continue;
      spans_.push_back({piece, from, to - from, Event{copies_.support, copies_.index}});
      from = to;
    }
  }

  void begin(void* behind) {
    if (running_) throw BuildError{name_ + " was started while its last step is under way: wait() for it first"};
    running_ = true;
    given_ = brought_ = 0;
    named([&] { queue_out(behind); });
  }
  void queue_out(void* behind) {
    if (behind) {
      begun_.record(behind);
      begun_.precede(copies_.out);
    }
    home_.precede(copies_.out);  // host memory is free when the last step's output has left it
    for (const Span& span : spans_) {
      for (int i = 0; i < inputs(); ++i) copy(copies_.out, host_->input(i), input(i), input_blocks_, span);
      span.out.record(copies_.out);
    }
  }
  // Copies the span of each of so many blocks.
  void copy(const Queue& queue, std::byte* to, const std::byte* from, std::size_t blocks, const Span& span) const {
    if (span.bytes == block_) return queue.copy(to, from, blocks * block_);
    for (std::size_t b = 0; b < blocks; ++b) queue.copy(to + b * block_ + span.from, from + b * block_ + span.from, span.bytes);
  }

  bool all_given() const { return given_ == spans_.size(); }
  void give_copied() {
    const auto before = given_;
    while (!all_given() && spans_[given_].out.happened()) ++given_;
    if (given_ > before) host_->give(spans_[given_ - 1].end);
  }
  void bring_home(int received) {
    if (brought_ == spans_.size()) return;
    for (; brought_ < spans_.size() && spans_[brought_].end <= received; ++brought_)
      copy(copies_.home, output(), host_->output(), output_blocks_, spans_[brought_]);
    if (brought_ == spans_.size()) home_.record(copies_.home);
  }

  template <class Work>
  std::invoke_result_t<Work&> named(Work work) const {
    return collectives::detail::named(name_, communicator_.blocks(), communicator_.rank(), copies_.index, work);
  }

  std::unique_ptr<collectives::Collective> host_;
  collectives::Communicator& communicator_;
  std::string name_;
  const CopyQueues& copies_;
  std::size_t element_, block_;  // bytes
  std::size_t input_blocks_, output_blocks_;
  PinnedMemory pinned_;
  Arena memory_;  // | input 0 | input 1 | ... | output |
  Event begun_, home_;
  std::vector<Span> spans_;
  std::size_t given_ = 0, brought_ = 0;  // numbers of spans
  bool running_ = false;
};

// For a device with its own memory: its collectives run in host memory.
class StagedCommunicator final : public collectives::Communicator {
 public:
  // `on_host`: the communicator of the device's rank; it outlives this object.
  StagedCommunicator(collectives::Communicator& on_host, const DeviceSupport& support, int index, std::size_t least_bytes = least_copied_bytes)
      : host_{on_host}, copies_{support, index, least_bytes} {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  const collectives::ReplicaBlocks& blocks() const override { return host_.blocks(); }
  transport::Latency latency() const override { return host_.latency(); }
  std::unique_ptr<collectives::Collective> prepare(const collectives::CollectiveSpec& spec, const collectives::Schedule& schedule) override {
    auto piecewise = spec;
    piecewise.piecewise = true;
    return std::make_unique<StagedCollective>(host_.prepare(piecewise, schedule), host_, spec, schedule, copies_);
  }
  void check() override { host_.check(); }

 private:
  collectives::Communicator& host_;
  CopyQueues copies_;
};

}  // namespace replicator::detail
