// SPDX-License-Identifier: Apache-2.0
// A schedule resolved for one rank and its memory: flat lines with absolute addresses, and the words that they wait for.
//
// A *lane* is one channel for one piece; lanes advance independently. Lines wait for *words*, counters that only grow.
// After line i of a lane in step k (from 0) the lane's word is k * stride + i + 1. The stride is larger than the number of
// lines in any lane.
//
// Where peers are readable, the words that peers wait for lie in memory that the peers see, each on its own cache line.
// Before them lie two words of the rank:
// - `started`: k * stride + the number of pieces whose inputs are written
// - `finished`: k * stride + 1
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <replicator/collectives/run/caller_buffers.hpp>
#include <replicator/collectives/run/operand_place.hpp>
#include <replicator/collectives/run/prepared_collective.hpp>
#include <replicator/collectives/run/rank_view.hpp>
#include <replicator/collectives/run/region_layout.hpp>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// Over when the word is at least the step's base + offset.
struct Wait {
  const std::byte* word;
  std::uint64_t offset;
  int rank;
};

// An instruction for one piece, with its waits and the addresses of this step.
struct Line {
  Action action;
  bool root;
  bool posted = false;
  bool told;     // a peer waits for it
  bool push;     // store the result into the outputs of all ranks
  bool fetched;  // a copy whose source a peer stores here: only its wait is left
  int peer;
  OperandPlace dst_at, left_at, right_at;
  std::int64_t whole;  // elements, where the caller's buffers have all
  // Set for each step by aim().
  std::byte* dst;
  const std::byte* left;
  const std::byte* right;
  std::int64_t elements;
  std::size_t pushed_at;  // offset in the regions or the output buffers of the peers
  std::uint64_t slot_ordinal;
  std::size_t first_wait;
  std::size_t waits;
  transport::Ticket ticket{};
};

// The lines of one channel and piece, and the next line to do.
struct Lane {
  std::size_t begin;
  std::size_t end;
  std::size_t next;
  int piece;
  std::size_t local_word;
  std::byte* peer_word;
};

// The layout of a rank's words, in host memory that its peers see.
class Words {
 public:
  static constexpr std::size_t line_bytes = 64;
  static constexpr std::size_t started = 0;
  static constexpr std::size_t finished = line_bytes;

  Words(const Schedule& schedule, int pieces) : pieces_{pieces}, stride_{static_cast<std::uint64_t>(pieces)} {
    for (const auto& program : schedule.programs) {
      channels_ = std::max(channels_, program.size());
      for (const Channel& channel : program) stride_ = std::max<std::uint64_t>(stride_, channel.size() + 1);
    }
  }
  std::uint64_t stride() const { return stride_; }
  std::size_t bytes() const { return line_bytes * (2 + channels_ * static_cast<std::size_t>(pieces_)); }
  std::size_t of_lane(int piece, int channel) const {
    return line_bytes * (2 + static_cast<std::size_t>(piece) * channels_ + static_cast<std::size_t>(channel));
  }

 private:
  int pieces_;
  std::size_t channels_ = 0;
  std::uint64_t stride_;
};

// The regions and words of all ranks, null where they cannot be read, and this rank's own.
struct RankMemory {
  std::byte* own;
  std::byte* own_words;
  std::vector<const std::byte*> bases;  // [rank]
  std::vector<const std::byte*> words;  // [rank]
};

// All lanes of one rank.
class LaneProgram {
 public:
  // `pushing`: roots are stored into the outputs of all ranks.
  LaneProgram(const Schedule& schedule, const Layout& layout, int rank, RankMemory memory, bool pushing)
      : layout_{layout}, words_{schedule, layout.pieces()}, me_{rank}, own_{memory.own}, memory_{std::move(memory)}, pushing_{pushing}, input_blocks_{schedule.input_blocks()} {
    const auto& mine = schedule.programs[static_cast<std::size_t>(me_)];
    channels_ = mine.size();
    progress.assign(channels_ * static_cast<std::size_t>(layout.pieces()), 0);
    add_lanes(schedule);
    const auto [outputs, inputs] = readers_of(schedule, me_, pushing_);
    for (const int reader : outputs) readers.push_back({words_of(reader) + Words::finished, 1, reader});
    for (const int reader : inputs) input_readers.push_back({words_of(reader) + Words::finished, 1, reader});
    find_exposed(schedule);
    aim({});
  }
  LaneProgram(const LaneProgram&) = delete;
  LaneProgram& operator=(const LaneProgram&) = delete;

  // Resolves the addresses of all lines, for this step and the following ones.
  void aim(const CallerBuffers& buffers) {
    for (Line& line : lines) {
      const OperandPlace& first = line.action == Action::send ? line.left_at : line.dst_at;
      line.elements = buffers.clipped(first.first, line.whole);
      line.dst = line.dst_at.target(buffers, own_);
      if (line.action != Action::recv) line.left = address(line.left_at, buffers);
      if (line.action == Action::reduce) line.right = address(line.right_at, buffers);
      line.pushed_at = buffers.outputs.empty() ? line.dst_at.region : line.dst_at.inside(buffers);
      if (!line.fetched) continue;
      // The peer has stored the value into the region, unless peers reach the caller's buffer.
      line.left = own_ + line.dst_at.region;
      if (!buffers.output || !buffers.outputs.empty()) line.elements = 0;
    }
  }

  // Copies the inputs that peers read from the caller's buffers into the region.
  void expose(const CallerBuffers& buffers) {
    if (!buffers.input || !buffers.inputs.empty()) return;
    for (const auto& [place, elements] : exposed_)
      Arithmetic::copy(own_ + place.region, place.source(buffers, own_), layout_.bytes(buffers.clipped(place.first, elements)));
  }

  std::uint64_t stride() const { return words_.stride(); }
  std::byte* own_words() const { return memory_.own_words; }
  const std::byte* words_of(int rank) const { return memory_.words[static_cast<std::size_t>(rank)]; }

  std::vector<std::uint64_t> progress;  // words of the own lanes
  std::vector<Wait> waits;
  std::vector<Line> lines;
  std::vector<Lane> lanes;
  std::vector<Wait> readers;        // ranks that must have finished before the output and scratch are written again
  std::vector<Wait> input_readers;  // ranks that must have finished before the inputs are written again

 private:
  std::size_t local_word(int piece, int channel) const {
    return static_cast<std::size_t>(piece) * channels_ + static_cast<std::size_t>(channel);
  }

  // Adds the lanes piece by piece, so that a piece stays in the cache. Every rank begins with its own chunk.
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
    // In "direct" every rank computes the root, and no rank waits for it.
    line.push = pushing_ && i.root && i.action == Action::reduce && told;
    line.fetched = pushing_ && fetches_output(i);
    line.peer = i.peer;
    line.whole = at.elements;
    line.slot_ordinal = ordinal;
    line.first_wait = waits.size();
    if (writes) line.dst_at = place(i.dst, piece);
    if (i.action != Action::recv) line.left_at = source(i.left, piece);
    if (i.action == Action::reduce) line.right_at = source(i.right, piece);
    for (const Dependency& d : i.after) add_wait(d, piece);
    line.waits = waits.size() - line.first_wait;
    return line;
  }

  OperandPlace place(const Operand& operand, int piece) const { return {layout_, input_blocks_, operand, piece}; }

  OperandPlace source(const Operand& operand, int piece) {
    if (operand.rank != me_ && operand.buffer == Buffer::input)
      waits.push_back({words_of(operand.rank) + Words::started, static_cast<std::uint64_t>(piece) + 1, operand.rank});
    return place(operand, piece);
  }

  const std::byte* address(const OperandPlace& at, const CallerBuffers& buffers) const {
    if (at.rank == me_) return at.source(buffers, own_);
    const auto rank = static_cast<std::size_t>(at.rank);
    if (at.buffer == Buffer::input && !buffers.inputs.empty()) return buffers.inputs[rank] + at.inside(buffers);
    return memory_.bases[rank] + at.region;
  }

  // Collects what other ranks load of this rank's inputs, each operand once.
  void find_exposed(const Schedule& schedule) {
    std::set<std::tuple<int, int, int>> seen;
    const auto add = [&](const Operand& o) {
      if (o.rank != me_ || o.buffer != Buffer::input || !seen.insert({o.index, o.chunk, o.count}).second) return;
      for (int piece = 0; piece < layout_.pieces(); ++piece) exposed_.push_back({place(o, piece), layout_.locate(o, piece).elements});
    };
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
        for (const Instruction& i : channel) {
          if (rank == me_) continue;
          if (i.action != Action::recv) add(i.left);
          if (i.action == Action::reduce) add(i.right);
        }
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
  RankMemory memory_;
  bool pushing_;
  int input_blocks_;
  std::size_t channels_ = 0;
  std::vector<std::pair<OperandPlace, std::int64_t>> exposed_;
};

}  // namespace replicator::detail::collectives::detail
