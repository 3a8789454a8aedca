// SPDX-License-Identifier: Apache-2.0
// Runs schedules that load nothing but inputs from peers ("direct", "all_gather", "flat_broadcast") for few bytes:
// every rank copies its inputs into its mailbox, where the payload follows its sequence number, and reads those of all
// others.
//
//   mailbox (two of them):  | sequence 8 B | - 8 B | payload ... |      up to 112 B are two cache lines
//
// Steps use the two mailboxes in turn. A rank overwrites a mailbox in step k + 2, when it has finished k + 1 and so has
// seen everyone's number k + 1, which they send after they have finished reading step k.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <replicator/collectives/prepared.hpp>
#include <vector>

namespace replicator::collectives {

inline constexpr std::size_t mailbox_limit_bytes = 64 * 1024;

// Whether peers are asked for inputs only.
inline bool loads_only_inputs(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
      for (const Instruction& i : channel) {
        if (i.action == Action::send || i.action == Action::recv) return false;
        if (i.left.rank != rank && i.left.buffer != Buffer::input) return false;
        if (i.action == Action::reduce && i.right.rank != rank && i.right.buffer != Buffer::input) return false;
        // Lines run in the order of the channels.
        if (!i.after.empty()) return false;
      }
  return true;
}

namespace detail {

template <transport::PeerReadable T>
class Mailbox final : public Prepared<T> {
  using Base = Prepared<T>;

 public:
  static std::size_t payload_bytes(const CollectiveSpec& spec, const Schedule& schedule) {
    std::size_t inputs = 0;
    for (int rank = 0; rank < schedule.ranks(); ++rank) inputs = std::max(inputs, schedule.inputs(rank).size());
    return inputs * static_cast<std::size_t>(spec.elements * schedule.input_blocks()) * size_of(spec.dtype);
  }

  Mailbox(T& transport, const CollectiveSpec& spec, const Schedule& schedule)
      : Base{transport, spec, schedule, 1, 2 * box_bytes(spec, schedule)},
        box_bytes_{box_bytes(spec, schedule)},
        input_bytes_{static_cast<std::size_t>(spec.elements * schedule.input_blocks()) * size_of(spec.dtype)} {
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      boxes_.push_back(this->transport_.peer(this->region_, rank) + this->layout_.end());
    const int me = transport.rank();
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(me)])
      for (const Instruction& i : channel) lines_.push_back(resolve(i, me));
  }

  void start() override {
    this->require_idle(running_);
    std::byte* box = this->region_.data + this->layout_.end() + step_ % 2 * box_bytes_;
    ++step_;
    for (int index = 0; index < this->inputs_ && input_bytes_ != 0; ++index)
      std::memcpy(box + header + static_cast<std::size_t>(index) * input_bytes_, this->input(index), input_bytes_);
    publish(box, step_);
    this->transport_.notify();
    arrived_ = 0;
    this->moved_ = 0;
    running_ = true;
  }

  bool advance() override {
    if (!running_) return true;
    this->transport_.progress();
    const std::size_t box = (step_ - 1) % 2 * box_bytes_;
    for (; arrived_ < boxes_.size(); ++arrived_)
      if (observe(boxes_[arrived_] + box) < step_) return false;
    for (const Line& line : lines_) {
      const std::byte* left = line.left + (line.left_in_box ? box : 0);
      const std::byte* right = line.right + (line.right_in_box ? box : 0);
      this->arithmetic_.run(line.action, line.dst, left, right, line.elements, line.root);
    }
    running_ = false;
    return true;
  }

 private:
  static constexpr std::size_t header = 16;

  struct Line {
    Action action;
    bool root;
    bool left_in_box;
    bool right_in_box;
    std::byte* dst;
    const std::byte* left;
    const std::byte* right;
    std::int64_t elements;
  };

  static std::size_t box_bytes(const CollectiveSpec& spec, const Schedule& schedule) {
    return (header + payload_bytes(spec, schedule) + 127) / 128 * 128;
  }

  Line resolve(const Instruction& i, int me) const {
    const auto dst = this->layout_.locate(i.dst, 0);
    const Operand& right = i.action == Action::reduce ? i.right : i.left;
    return {i.action,
            i.root,
            i.left.rank != me,
            right.rank != me,
            this->region_.data + dst.offset,
            address(i.left, me),
            address(right, me),
            dst.elements};
  }

  // Of a remote input: in the first of the two mailboxes.
  const std::byte* address(const Operand& operand, int me) const {
    const auto at = this->layout_.locate(operand, 0);
    if (operand.rank == me) return this->region_.data + at.offset;
    const std::size_t inside = at.offset - this->layout_.input(operand.index);
    return boxes_[static_cast<std::size_t>(operand.rank)] + header +
           static_cast<std::size_t>(operand.index) * input_bytes_ + inside;
  }

  int missing_rank() const override { return arrived_ < boxes_.size() ? static_cast<int>(arrived_) : -1; }

  std::size_t box_bytes_;
  std::size_t input_bytes_;
  std::vector<const std::byte*> boxes_;  // [rank]
  std::vector<Line> lines_;
  std::uint64_t step_ = 0;
  std::size_t arrived_ = 0;  // ranks whose mailbox of this step is full
  bool running_ = false;
};

}  // namespace detail

}  // namespace replicator::collectives
