// SPDX-License-Identifier: Apache-2.0
// A schedule resolved for one rank and its memory: flat lines with absolute addresses, and the words to wait for.
//
// A *lane* is one channel for one piece; lanes advance independently. What others wait for is counted in words: after
// line i of a lane in step k (from 0) the word is k * stride + i + 1, stride being more than any lane has lines, so
// that words only grow. Where peers are readable, the words of lines that peers wait for lie in the region, one to a
// cache line, behind the words `started` and `finished` of the rank (k * stride + 1).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <replicator/collectives/layout.hpp>
#include <replicator/collectives/rank_view.hpp>
#include <utility>
#include <vector>

namespace replicator::collectives::detail {

// Ready when the word is at least the step's base + offset.
struct Wait {
  const std::byte* word;
  std::uint64_t offset;
  int rank;
};

struct Line {
  Action action;
  bool root;
  bool posted = false;
  bool told;  // a peer waits for it
  bool push;  // store into all outputs
  int peer;
  std::byte* dst;
  const std::byte* left;
  const std::byte* right;
  std::int64_t elements;
  std::uint64_t slot_ordinal;
  std::size_t first_wait;
  std::size_t waits;
  transport::Ticket ticket{};
};

struct Lane {
  std::size_t begin;
  std::size_t end;
  std::size_t next;
  int piece;
  std::size_t local_word;
  std::byte* peer_word;
};

// The words of a rank, behind the buffers of its region.
class Words {
 public:
  static constexpr std::size_t line_bytes = 64;
  static constexpr std::size_t started = 0;
  static constexpr std::size_t finished = line_bytes;

  explicit Words(const Schedule& schedule) {
    for (const auto& program : schedule.programs) {
      channels_ = std::max(channels_, program.size());
      for (const Channel& channel : program) stride_ = std::max<std::uint64_t>(stride_, channel.size() + 1);
    }
  }
  std::uint64_t stride() const { return stride_; }
  std::size_t bytes(int pieces) const { return line_bytes * (2 + channels_ * static_cast<std::size_t>(pieces)); }
  std::size_t of_lane(int piece, int channel) const {
    return line_bytes * (2 + static_cast<std::size_t>(piece) * channels_ + static_cast<std::size_t>(channel));
  }

 private:
  std::size_t channels_ = 0;
  std::uint64_t stride_ = 1;
};

class LaneProgram {
 public:
  // bases[rank]: its region, null where it cannot be read. `own` is this rank's. `pushing`: roots are stored into the
  // outputs of all.
  LaneProgram(const Schedule& schedule, const Layout& layout, int rank, std::byte* own,
              std::vector<const std::byte*> bases, bool pushing)
      : layout_{layout}, words_{schedule}, me_{rank}, own_{own}, bases_{std::move(bases)}, pushing_{pushing} {
    const auto& mine = schedule.programs[static_cast<std::size_t>(me_)];
    channels_ = mine.size();
    progress.assign(channels_ * static_cast<std::size_t>(layout.pieces()), 0);
    add_lanes(schedule);
    const auto [outputs, inputs] = readers_of(schedule, me_, pushing_);
    for (const int reader : outputs) readers.push_back({words_of(reader) + Words::finished, 1, reader});
    for (const int reader : inputs) input_readers.push_back({words_of(reader) + Words::finished, 1, reader});
  }
  LaneProgram(const LaneProgram&) = delete;
  LaneProgram& operator=(const LaneProgram&) = delete;

  std::uint64_t stride() const { return words_.stride(); }
  std::byte* own_words() const { return own_ + layout_.end(); }
  const std::byte* words_of(int rank) const { return bases_[static_cast<std::size_t>(rank)] + layout_.end(); }

  std::vector<std::uint64_t> progress;  // words of the own lanes
  std::vector<Wait> waits;
  std::vector<Line> lines;
  std::vector<Lane> lanes;
  std::vector<Wait> readers;        // who must have finished before the output and scratch are written again
  std::vector<Wait> input_readers;  // who must have finished before the inputs are

 private:
  std::size_t local_word(int piece, int channel) const {
    return static_cast<std::size_t>(piece) * channels_ + static_cast<std::size_t>(channel);
  }

  // Piece by piece, so that a piece stays in the cache; every rank begins with its own chunk.
  void add_lanes(const Schedule& schedule) {
    const auto& mine = schedule.programs[static_cast<std::size_t>(me_)];
    const std::vector<std::vector<bool>> told = told_lines(schedule, me_);
    const std::vector<std::vector<std::uint64_t>> ordinals = message_ordinals(mine);
    const int channels = static_cast<int>(channels_);
    for (int piece = 0; piece < layout_.pieces(); ++piece) {
      for (int k = 0; k < channels; ++k) {
        const int c = (me_ + k) % channels;
        const auto channel = static_cast<std::size_t>(c);
        const std::size_t begin = lines.size();
        for (std::size_t i = 0; i < mine[channel].size(); ++i)
          lines.push_back(resolve(mine[channel][i], piece, told[channel][i], ordinals[channel][i]));
        if (lines.size() > begin)
          lanes.push_back({begin, lines.size(), begin, piece, local_word(piece, c),
                           own_words() + words_.of_lane(piece, c)});
      }
    }
  }

  Line resolve(const Instruction& i, int piece, bool told, std::uint64_t ordinal) {
    const bool writes = i.action != Action::send;
    const auto at = layout_.locate(writes ? i.dst : i.left, piece);
    Line line{};
    line.action = i.action;
    line.root = i.root;
    line.told = told;
    // In "direct" everyone computes the root, and nobody waits for it.
    line.push = pushing_ && i.root && i.action == Action::reduce && told;
    line.peer = i.peer;
    line.elements = at.elements;
    line.slot_ordinal = ordinal;
    line.first_wait = waits.size();
    if (writes) line.dst = own_ + at.offset;
    if (i.action != Action::recv) line.left = source(i.left, piece);
    if (i.action == Action::reduce) line.right = source(i.right, piece);
    for (const Dependency& d : i.after) add_wait(d, piece);
    line.waits = waits.size() - line.first_wait;
    // A copy whose source comes by itself: only its wait is left.
    if (pushing_ && fetches_output(i)) line.elements = 0;
    return line;
  }

  const std::byte* source(const Operand& operand, int piece) {
    if (operand.rank != me_ && operand.buffer == Buffer::input)
      waits.push_back({words_of(operand.rank) + Words::started, 1, operand.rank});
    return bases_[static_cast<std::size_t>(operand.rank)] + layout_.locate(operand, piece).offset;
  }

  void add_wait(const Dependency& d, int piece) {
    const auto offset = static_cast<std::uint64_t>(d.instruction) + 1;
    const std::byte* word = d.rank == me_ ? reinterpret_cast<const std::byte*>(&progress[local_word(piece, d.channel)])
                                          : words_of(d.rank) + words_.of_lane(piece, d.channel);
    waits.push_back({word, offset, d.rank});
  }

  const Layout& layout_;
  Words words_;
  int me_;
  std::byte* own_;
  std::vector<const std::byte*> bases_;
  bool pushing_;
  std::size_t channels_ = 0;
};

}  // namespace replicator::collectives::detail
