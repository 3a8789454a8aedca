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
#include <replicator/collectives/place.hpp>
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
    aim({});
  }

  void start() override { start_on({}); }

  bool start_on(const CallerBuffers& buffers) override {
    this->require_idle(running_);
    if (aimed_ || buffers.input || buffers.output) aim(buffers);
    std::byte* box = this->region_.data + this->layout_.end() + step_ % 2 * box_bytes_;
    ++step_;
    if (buffers.input) this->pack(box + header, input_bytes_, buffers);
    for (int index = 0; !buffers.input && index < this->inputs_ && input_bytes_ != 0; ++index)
      std::memcpy(box + header + static_cast<std::size_t>(index) * input_bytes_, this->input(index), input_bytes_);
    publish(box, step_);
    this->transport_.notify();
    arrived_ = 0;
    this->moved_ = 0;
    running_ = true;
    return buffers.output != nullptr;
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
    Place dst_at, left_at, right_at;
    std::int64_t whole;      // elements, where the caller's buffers have all
    const std::byte* boxed;  // of a remote operand
    const std::byte* boxed_right;
    // Of this step.
    std::byte* dst;
    const std::byte* left;
    const std::byte* right;
    std::int64_t elements;
  };

  void aim(const CallerBuffers& buffers) {
    aimed_ = buffers.input || buffers.output;
    std::byte* const own = this->region_.data;
    for (Line& line : lines_) {
      line.elements = buffers.clipped(line.dst_at.first, line.whole);
      line.dst = line.dst_at.target(buffers, own);
      line.left = line.left_in_box ? line.boxed : line.left_at.source(buffers, own);
      line.right = line.right_in_box ? line.boxed_right : line.right_at.source(buffers, own);
    }
  }

  static std::size_t box_bytes(const CollectiveSpec& spec, const Schedule& schedule) {
    return (header + payload_bytes(spec, schedule) + 127) / 128 * 128;
  }

  Line resolve(const Instruction& i, int me) const {
    const Operand& right = i.action == Action::reduce ? i.right : i.left;
    const auto place = [this](const Operand& operand) { return Place{this->layout_, this->input_blocks_, operand, 0}; };
    Line line{};
    line.action = i.action;
    line.root = i.root;
    line.left_in_box = i.left.rank != me;
    line.right_in_box = right.rank != me;
    line.dst_at = place(i.dst);
    line.left_at = place(i.left);
    line.right_at = place(right);
    line.whole = this->layout_.locate(i.dst, 0).elements;
    if (line.left_in_box) line.boxed = in_box(i.left);
    if (line.right_in_box) line.boxed_right = in_box(right);
    return line;
  }

  // In the first of the two mailboxes.
  const std::byte* in_box(const Operand& operand) const {
    const auto at = this->layout_.locate(operand, 0);
    const std::size_t inside = at.offset - this->layout_.input(operand.index);
    return boxes_[static_cast<std::size_t>(operand.rank)] + header +
           static_cast<std::size_t>(operand.index) * input_bytes_ + inside;
  }

  int missing_rank() const override { return arrived_ < boxes_.size() ? static_cast<int>(arrived_) : -1; }

  std::size_t box_bytes_;
  std::size_t input_bytes_;
  bool aimed_ = false;  // at buffers of the caller's
  std::vector<const std::byte*> boxes_;  // [rank]
  std::vector<Line> lines_;
  std::uint64_t step_ = 0;
  std::size_t arrived_ = 0;  // ranks whose mailbox of this step is full
  bool running_ = false;
};

}  // namespace detail

}  // namespace replicator::collectives
