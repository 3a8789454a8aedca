// SPDX-License-Identifier: Apache-2.0
// The place of an operand of a prepared schedule: in the region of its rank, or in a buffer of the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/collectives/run/caller_buffers.hpp>
#include <replicator/collectives/run/region_layout.hpp>
#include <replicator/collectives/schedule.hpp>

namespace replicator::detail::collectives::detail {

// Resolves an operand to an address, for the buffers of a step.
struct OperandPlace {
  Buffer buffer;
  int rank;
  std::size_t region;  // offset in the region
  std::size_t from;    // bytes from the beginning of its block
  std::int64_t first;  // first element in the block
  std::int64_t block;  // index among all blocks of the caller's buffer

  OperandPlace() : OperandPlace{Buffer::scratch, 0, 0, 0, 0, 0} {}
  OperandPlace(Buffer in, int of_rank, std::size_t at, std::size_t bytes, std::int64_t element, std::int64_t of_block)
      : buffer{in}, rank{of_rank}, region{at}, from{bytes}, first{element}, block{of_block} {}
  // `input_blocks`: blocks of each input.
  OperandPlace(const Layout& layout, int input_blocks, const Operand& operand, int piece)
      : OperandPlace{operand.buffer,
                     operand.rank,
                     layout.locate(operand, piece).offset,
                     layout.bytes(layout.first(operand, piece)),
                     layout.first(operand, piece),
                     layout.block(operand) + (operand.buffer == Buffer::input ? std::int64_t{operand.index} * input_blocks : 0)} {}

  // Offset from the beginning of the caller's buffer.
  std::size_t inside(const CallerBuffers& buffers) const { return static_cast<std::size_t>(block) * buffers.stride + from; }
  // Addresses of an operand of this rank; `own` is the rank's region.
  std::byte* target(const CallerBuffers& buffers, std::byte* own) const {
    return buffer == Buffer::output && buffers.output ? buffers.output + inside(buffers) : own + region;
  }
  const std::byte* source(const CallerBuffers& buffers, std::byte* own) const {
    return buffer == Buffer::input && buffers.input ? buffers.input + inside(buffers) : target(buffers, own);
  }
};

}  // namespace replicator::detail::collectives::detail
