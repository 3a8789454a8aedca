// SPDX-License-Identifier: Apache-2.0
// The layout of a collective's buffers in its region. Offsets are equal on every rank, so that peers find the buffers.
//
//   | input 0 | input 1 | ... | output | piece 0: slot 0, slot 1, ... | piece 1: ... |      each begins on a cache line
//
// Where a single rank only copies its one input, the output is that input.
//
// A *piece* is a span of elements of every block. The whole schedule runs separately on each piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/schedule.hpp>

namespace replicator::detail::collectives {

// The chunk size from which a piece of its own pays: half of a core's second cache.
inline constexpr std::size_t default_piece_bytes = 256 * 1024;

// The number of pieces of a schedule where pieces overlap, from 1 to 64. A message tag has room for 255.
inline int piece_count(const CollectiveSpec& spec, const Schedule& schedule, std::size_t piece_bytes = default_piece_bytes) {
  const std::size_t block = static_cast<std::size_t>(spec.elements) * size_of(spec.dtype);
  return static_cast<int>(std::clamp<std::size_t>(block / static_cast<std::size_t>(schedule.chunks) / piece_bytes, 1, 64));
}

// Whether the schedule has one rank with one input, and only copies each chunk to the same chunk of the output.
inline bool copies_onto_itself(const Schedule& schedule) {
  if (schedule.ranks() != 1 || schedule.inputs(0).size() != 1) return false;
  const auto copies = [](const Instruction& i) {
    return i.action == Action::copy && i.dst.buffer == Buffer::output && i.left.buffer == Buffer::input && i.dst.chunk == i.left.chunk &&
           i.dst.count == i.left.count;
  };
  return std::all_of(schedule.programs[0].begin(), schedule.programs[0].end(),
                     [&](const Channel& channel) { return std::all_of(channel.begin(), channel.end(), copies); });
}

// Computes the offsets of all buffers.
class Layout {
 public:
  // A stretch of a region.
  struct Extent {
    std::size_t offset;
    std::int64_t elements;
  };

  Layout(const CollectiveSpec& spec, const Schedule& schedule, int pieces)
      : elements_{spec.elements}, size_{size_of(spec.dtype)}, chunks_{schedule.chunks}, pieces_{pieces} {
    int inputs = 0, output_blocks = 0;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      inputs = std::max(inputs, static_cast<int>(schedule.inputs(rank).size()));
      output_blocks = std::max(output_blocks, schedule.output_blocks(rank));
      slots_ = std::max(slots_, static_cast<std::size_t>(schedule.scratch[static_cast<std::size_t>(rank)]));
    }
    input_bytes_ = lines(bytes(elements_) * static_cast<std::size_t>(schedule.input_blocks()));
    output_ = copies_onto_itself(schedule) ? 0 : input_bytes_ * static_cast<std::size_t>(inputs);
    scratch_ = output_ + lines(bytes(elements_) * static_cast<std::size_t>(output_blocks));
    for (int piece = 0; piece < pieces; ++piece)
      for (int chunk = 0; chunk < chunks_; ++chunk)
        slot_bytes_ = std::max(slot_bytes_, lines(bytes(begin(piece, chunk + 1) - begin(piece, chunk))));
    end_ = scratch_ + static_cast<std::size_t>(pieces) * slots_ * slot_bytes_;
  }

  int pieces() const { return pieces_; }
  std::int64_t elements() const { return elements_; }
  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * size_; }
  std::size_t input(int index) const { return input_bytes_ * static_cast<std::size_t>(index); }
  std::size_t output() const { return output_; }
  std::size_t end() const { return end_; }

  // The operand's first element in its block.
  std::int64_t first(const Operand& operand, int piece) const { return begin(piece, operand.chunk % chunks_); }
  // The index of the operand's block in its buffer.
  std::int64_t block(const Operand& operand) const { return operand.chunk / chunks_; }

  Extent locate(const Operand& operand, int piece) const {
    const std::int64_t from = first(operand, piece);
    const std::int64_t count = begin(piece, operand.chunk % chunks_ + operand.count) - from;
    const std::size_t inside = bytes(block(operand) * elements_ + from);
    if (operand.buffer == Buffer::input) return {input(operand.index) + inside, count};
    if (operand.buffer == Buffer::output) return {output_ + inside, count};
    const std::size_t slot = static_cast<std::size_t>(piece) * slots_ + static_cast<std::size_t>(operand.index);
    return {scratch_ + slot * slot_bytes_, count};
  }

 private:
  static std::size_t lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  // The element of a block at which a chunk of a piece begins.
  std::int64_t begin(int piece, int chunk) const {
    const std::int64_t from = part_begin(elements_, pieces_, piece);
    return from + part_begin(part_begin(elements_, pieces_, piece + 1) - from, chunks_, chunk);
  }

  std::int64_t elements_;
  std::size_t size_;
  int chunks_;
  int pieces_;
  std::size_t slots_ = 0;
  std::size_t input_bytes_ = 0;
  std::size_t output_ = 0;
  std::size_t scratch_ = 0;
  std::size_t slot_bytes_ = 0;
  std::size_t end_ = 0;
};

}  // namespace replicator::detail::collectives
