// SPDX-License-Identifier: Apache-2.0
// Runs collectives of few bytes through mailboxes. It takes schedules that load only inputs from peers ("direct",
// "all_gather", "flat_broadcast"). Every rank copies its inputs into its mailbox, beside a sequence number. It reads the
// mailboxes of the ranks that it loads from.
//
//   mailbox (n of them):  | sequence 8 B | - 8 B | payload ... |      up to 112 B of payload take two cache lines
//
// Steps use the n mailboxes in turn. A rank fills the mailbox of step k again in step k + n. Before, it must see the number
// k + 1 of every rank that reads it. A rank sends k + 1 only after it has finished reading step k.
//
// Where every rank reads from all, no rank is ever two steps ahead, and two mailboxes suffice. The root of a broadcast may
// run further ahead of its readers, so it has more mailboxes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <replicator/collectives/run/operand_place.hpp>
#include <replicator/collectives/run/prepared_collective.hpp>
#include <vector>

namespace replicator::detail::collectives {

// Largest payload of a mailbox.
inline constexpr std::size_t mailbox_limit_bytes = 64 * 1024;
inline constexpr std::size_t run_ahead_bytes = 16 * 1024, run_ahead_steps = 8;  // at most

// Whether the schedule loads nothing but inputs from peers, and has no messages and no dependencies.
inline bool loads_only_inputs(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
      for (const Instruction& i : channel) {
        if (i.action == Action::send || i.action == Action::recv) return false;
        if (i.left.rank != rank && i.left.buffer != Buffer::input) return false;
        if (i.action == Action::reduce && i.right.rank != rank && i.right.buffer != Buffer::input) return false;
        // Lines run channel by channel and wait for nothing.
        if (!i.after.empty()) return false;
      }
  return true;
}

namespace detail {

// loads[r][s]: whether rank r loads from another rank s.
using Loads = std::vector<std::vector<bool>>;
inline Loads ranks_loaded(const Schedule& schedule) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks());
  Loads loads(ranks, std::vector<bool>(ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (const Channel& channel : schedule.programs[rank])
      for (const Instruction& i : channel) {
        loads[rank][static_cast<std::size_t>(i.left.rank)] = true;
        if (i.action == Action::reduce) loads[rank][static_cast<std::size_t>(i.right.rank)] = true;
      }
    loads[rank][rank] = false;
  }
  return loads;
}

template <transport::PeerReadable T>
class MailboxRunner final : public Prepared<T> {
  using Base = Prepared<T>;

 public:
  static std::size_t payload_bytes(const CollectiveSpec& spec, const Schedule& schedule) {
    std::size_t inputs = 0;
    for (int rank = 0; rank < schedule.ranks(); ++rank) inputs = std::max(inputs, schedule.inputs(rank).size());
    return inputs * static_cast<std::size_t>(spec.elements * schedule.input_blocks()) * size_of(spec.dtype);
  }

  MailboxRunner(T& transport, const CollectiveSpec& spec, const Schedule& schedule)
      : MailboxRunner{transport, spec, schedule, ranks_loaded(schedule), box_bytes(spec, schedule)} {}

  ~MailboxRunner() override { this->release_unless_running(this->region_); }

  void start() override { start_on({}); }

  bool start_on(const CallerBuffers& buffers) override {
    this->require_idle();
    if (aimed_ || buffers.input || buffers.output) aim(buffers);
    given_.input = buffers.input;
    given_.stride = buffers.stride;
    given_.elements = buffers.elements;
    ++step_;
    sent_ = false;
    heard_ = arrived_ = 0;
    this->moved_ = 0;
    this->running_ = true;
    send();
    return buffers.output != nullptr;
  }

  bool advance() override {
    if (!this->running_) return true;
    this->transport_.progress();
    if (!send()) return false;
    const std::size_t box = box_of(step_);
    for (; arrived_ < sources_.size(); ++arrived_)
      if (observe(boxes_[index(sources_[arrived_])] + box) < step_) return false;
    for (const Line& line : lines_) {
      const std::byte* left = line.left + (line.left_in_box ? box : 0);
      const std::byte* right = line.right + (line.right_in_box ? box : 0);
      this->arithmetic_.run(line.action, line.dst, left, right, line.elements, line.root);
    }
    this->running_ = false;
    return true;
  }

 private:
  MailboxRunner(T& transport, const CollectiveSpec& spec, const Schedule& schedule, const Loads& loads, std::size_t box_bytes)
      : Base{transport, spec, schedule, 1, Base::with_more(transport, boxes(loads, box_bytes) * box_bytes)},
        count_{boxes(loads, box_bytes)},
        box_bytes_{box_bytes},
        input_bytes_{static_cast<std::size_t>(spec.elements * schedule.input_blocks()) * size_of(spec.dtype)} {
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      boxes_.push_back(this->transport_.peer(this->region_, rank) + this->layout_.end());
    const int me = transport.rank();
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const bool source = loads[index(me)][index(rank)], reader = loads[index(rank)][index(me)];
      if (source) sources_.push_back(rank);
      if (reader && !source) listeners_.push_back({rank});
      read_ = read_ || reader;
    }
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(me)])
      for (const Instruction& i : channel) lines_.push_back(resolve(i, me));
    aim({});
  }

  static constexpr std::size_t header = 16;

  struct Line {
    Action action;
    bool root;
    bool left_in_box;
    bool right_in_box;
    OperandPlace dst_at, left_at, right_at;
    std::int64_t whole;      // elements, where the caller's buffers have all
    const std::byte* boxed;  // address of a remote operand in the first mailbox
    const std::byte* boxed_right;
    // Set for each step by aim().
    std::byte* dst;
    const std::byte* left;
    const std::byte* right;
    std::int64_t elements;
  };

  // A rank that loads from this one, while this one does not load from it.
  struct Listener {
    int rank;
    std::uint64_t seen = 1;  // newest sequence number seen in its mailboxes; there was no step 0 to read
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  // Offset of a step's mailbox behind the buffers.
  std::size_t box_of(std::uint64_t step) const { return (step - 1) % count_ * box_bytes_; }

  // Fills the mailbox and publishes its number. Returns false while a listener may still read the old payload. The ranks
  // that this rank loads from need no check: its last step finished only after they had sent the next number.
  bool send() {
    if (sent_) return true;
    for (; heard_ < listeners_.size(); ++heard_)
      if (!has_left(listeners_[heard_])) return false;
    std::byte* box = this->region_.data + this->layout_.end() + box_of(step_);
    if (read_) fill(box + header);
    publish(box, step_);
    this->transport_.notify();
    return sent_ = true;
  }

  // Whether this listener has read the old payload. It looks for a newer number first: a listener is often well ahead, and
  // is then not asked again for a while.
  bool has_left(Listener& listener) const {
    if (listener.seen + count_ > step_) return true;
    for (const std::uint64_t number : {step_ - count_ / 2, step_ - count_ + 1}) {
      if (observe(boxes_[index(listener.rank)] + box_of(number)) < number) continue;
      listener.seen = number;
      return true;
    }
    return false;
  }

  void fill(std::byte* payload) {
    if (input_bytes_ == 0) return;
    if (given_.input) return this->pack(payload, input_bytes_, given_);
    for (int k = 0; k < this->inputs_; ++k) std::memcpy(payload + index(k) * input_bytes_, this->input(k), input_bytes_);
  }

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

  static std::size_t boxes(const Loads& loads, std::size_t box_bytes) {
    for (std::size_t a = 0; a < loads.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (loads[a][b] != loads[b][a]) return std::clamp<std::size_t>(run_ahead_bytes / box_bytes, 2, run_ahead_steps);
    return 2;
  }
  static std::size_t box_bytes(const CollectiveSpec& spec, const Schedule& schedule) {
    return (header + payload_bytes(spec, schedule) + 127) / 128 * 128;
  }

  Line resolve(const Instruction& i, int me) const {
    const Operand& right = i.action == Action::reduce ? i.right : i.left;
    const auto place = [this](const Operand& operand) { return OperandPlace{this->layout_, this->input_blocks_, operand, 0}; };
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

  // The address in the first mailbox.
  const std::byte* in_box(const Operand& operand) const {
    const auto at = this->layout_.locate(operand, 0);
    const std::size_t inside = at.offset - this->layout_.input(operand.index);
    return boxes_[static_cast<std::size_t>(operand.rank)] + header +
           static_cast<std::size_t>(operand.index) * input_bytes_ + inside;
  }

  int missing_rank() const override {
    if (!sent_) return listeners_[heard_].rank;
    return arrived_ < sources_.size() ? sources_[arrived_] : -1;
  }

  std::size_t count_;
  std::size_t box_bytes_;
  std::size_t input_bytes_;
  bool aimed_ = false;                   // at buffers of the caller
  std::vector<const std::byte*> boxes_;  // [rank]
  std::vector<Line> lines_;
  std::vector<int> sources_;  // ranks from which this rank loads
  std::vector<Listener> listeners_;
  bool read_ = false;    // some rank loads from this one
  CallerBuffers given_;  // buffers of this step
  std::uint64_t step_ = 0;
  bool sent_ = true;
  std::size_t heard_ = 0;    // listeners that have read the old payload
  std::size_t arrived_ = 0;  // sources whose mailbox of this step is full
};

}  // namespace detail

}  // namespace replicator::detail::collectives
