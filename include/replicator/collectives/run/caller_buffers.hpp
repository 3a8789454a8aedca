// SPDX-License-Identifier: Apache-2.0
// Buffers of the caller for one step of a collective. The step works on them instead of on the collective's own buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace replicator::detail::collectives {

// Each input has n blocks. Block b of input i begins at input + (i n + b) stride. Block b of the output begins at output +
// b stride. All are aligned to their elements.
struct CallerBuffers {
  const std::byte* input = nullptr;  // null: the step reads what was written to input(i) before
  std::byte* output = nullptr;       // null: the result is left in output()
  std::size_t stride = 0;            // bytes
  bool in_place = false;             // they overlap: an all_reduce's output lies over a block of the input, a broadcast's is the input
  // How many elements of each block count in this step. Equal on every rank; at most as many as were prepared.
  std::int64_t elements = std::numeric_limits<std::int64_t>::max();
  // The same buffers on every rank, by rank, where all of them lie in memory of Communicator::allocate: peers then access
  // them directly. Otherwise empty, on every rank, and peers see copies.
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;

  std::int64_t clipped(std::int64_t from, std::int64_t count) const { return std::clamp<std::int64_t>(elements - from, 0, count); }
};

}  // namespace replicator::detail::collectives
