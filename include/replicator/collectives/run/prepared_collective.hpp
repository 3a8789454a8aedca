// SPDX-License-Identifier: Apache-2.0
// The base of all prepared collectives: memory, waiting, and the error that names a peer that does not come.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <replicator/collectives/combine_elements.hpp>
#include <replicator/collectives/reduction.hpp>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/run/region_layout.hpp>
#include <replicator/core/replicas_text.hpp>
#include <string>

namespace replicator::detail::collectives::detail {

// Words with which ranks signal to each other. The store is seq_cst: a notifier that then finds no sleeper can be sure that
// every waiter sees the word before it sleeps.
inline void publish(std::byte* word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>{*reinterpret_cast<std::uint64_t*>(word)}.store(value);
}
inline std::uint64_t observe(const std::byte* word) {
  // atomic_ref needs a mutable object even for a load.
  auto* value = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(word));
  return std::atomic_ref<std::uint64_t>{*value}.load();
}

// Executes one local instruction on resolved addresses.
struct Arithmetic {
  DType dtype;
  Reduction reduction;
  int replicas;  // number of replicas that are reduced
  CombineFunction combine;

  Arithmetic(const CollectiveSpec& spec, const Schedule& schedule)
      : dtype{spec.dtype},
        reduction{spec.reduction},
        replicas{schedule.groups.size(0)},
        combine{reduces(schedule.kind) ? combine_function(spec.dtype, spec.reduction) : nullptr} {}

  // Does nothing in place.
  static void copy(std::byte* dst, const std::byte* from, std::size_t bytes) {
    if (dst != from) std::memcpy(dst, from, bytes);
  }

  void run(Action action, std::byte* dst, const std::byte* left, const std::byte* right, std::int64_t elements,
           bool root) const {
    if (elements == 0) return;
    if (action == Action::reduce)
      combine(dst, left, right, elements);
    else
      copy(dst, left, static_cast<std::size_t>(elements) * size_of(dtype));
    if (root) finish_root(dtype, reduction, dst, elements, replicas);
  }
};

template <transport::Transport T>
class Prepared : public Collective {
 public:
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  int inputs() const override { return inputs_; }
  std::byte* input(int index) override { return region_.data + layout_.input(index); }
  std::byte* output() override { return region_.data + layout_.output(); }
  std::size_t bytes() const override { return region_.bytes; }

  void wait(transport::Clock::time_point deadline) override {
    if (!wait_until(deadline, {})) throw late();
  }
  bool wait_until(transport::Clock::time_point time, const std::function<void()>& beside) final {
    const auto ready = [&] {
      if (beside) beside();
      return advance();
    };
    return advance() || transport_.wait(ready, time);
  }
  Missing missing() const override { return {missing_rank(), moved_}; }

 protected:
  // allocate(bytes) returns the region that holds the layout.
  template <class Allocate>
  Prepared(T& transport, const CollectiveSpec& spec, const Schedule& schedule, int pieces, Allocate allocate)
      : transport_{transport},
        layout_{spec, schedule, pieces},
        blocks_{schedule.blocks},
        arithmetic_{spec, schedule},
        name_{spec.name.empty() ? std::string{name_of(spec.kind)} : spec.name},
        inputs_{static_cast<int>(schedule.inputs(transport.rank()).size())},
        input_blocks_{schedule.input_blocks()},
        region_{allocate(layout_.end())} {}
  // An allocator in host memory that adds `more` bytes behind the layout.
  static auto with_more(T& transport, std::size_t more) {
    return [&transport, more](std::size_t bytes) { return transport.allocate(bytes + more); };
  }

  // For destructors. The memory of a step that has failed stays: messages may still arrive there.
  void release_unless_running(transport::Region region) {
    if (!running_) transport_.release(region);
  }

  // A rank that this one waits for, or -1.
  virtual int missing_rank() const = 0;

  // Copies the caller's inputs to `to`, where one input begins `input_bytes` after the other. Blocks there are as long as
  // they were prepared.
  void pack(std::byte* to, std::size_t input_bytes, const CallerBuffers& buffers) const {
    const std::size_t room = layout_.bytes(layout_.elements()), bytes = layout_.bytes(buffers.clipped(0, layout_.elements()));
    if (bytes == 0) return;
    const std::byte* from = buffers.input;
    for (int index = 0; index < inputs_; ++index)
      for (int block = 0; block < input_blocks_; ++block, from += buffers.stride)
        std::memcpy(to + static_cast<std::size_t>(index) * input_bytes + static_cast<std::size_t>(block) * room, from, bytes);
  }

  void require_idle() const {
    if (running_) throw BuildError{name_ + " was started while its last step is under way: wait() for it first"};
  }

  CommunicationError late() const {
    const int rank = missing_rank();
    std::string text = name_ + ": rank " + std::to_string(transport_.rank()) + " waited until the deadline";
    if (rank >= 0)
      text += " for rank " + std::to_string(rank) + " (" + replicas_text(blocks_.begin(rank), blocks_.end(rank) - 1) + ")";
    text += "; " + std::to_string(moved_) +
            " bytes had moved here. It is stopped, dead or slow: look there, or allow a longer deadline (--deadline, or the option of a World)";
    return {text, rank};
  }

  T& transport_;
  Layout layout_;
  ReplicaBlocks blocks_;
  Arithmetic arithmetic_;
  std::string name_;
  int inputs_;
  int input_blocks_;
  transport::Region region_;
  bool running_ = false;     // a step is under way
  std::uint64_t moved_ = 0;  // bytes written in this step
};

}  // namespace replicator::detail::collectives::detail
