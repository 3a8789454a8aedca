// SPDX-License-Identifier: Apache-2.0
// Memory of the caller's, on which a step of a collective works instead of the buffers that the collective has itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace replicator::detail::collectives {

// Block b of input i, of the n blocks that each input has, begins at input + (i n + b) stride, block b of the output at
// output + b stride. All are aligned to their elements.
struct CallerBuffers {
  const std::byte* input = nullptr;  // null: what was written to input(i) before
  std::byte* output = nullptr;       // null: it is left in output()
  std::size_t stride = 0;            // bytes
  bool in_place = false;             // they overlap: an all_reduce's output lies over a block of the input, a broadcast's is the input
  // Of each block that count in this step; equal on every rank, at most as many as were prepared.
  std::int64_t elements = std::numeric_limits<std::int64_t>::max();
  // The same buffers on every rank, by rank, where all of them lie in memory of Communicator::allocate; else empty: peers
  // see copies. Equally empty on every rank.
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;

  std::int64_t clipped(std::int64_t from, std::int64_t count) const { return std::clamp<std::int64_t>(elements - from, 0, count); }
};

}  // namespace replicator::detail::collectives
