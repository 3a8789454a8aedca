// SPDX-License-Identifier: Apache-2.0
// The extents of a reduction, for code of the host and of the device.
#pragma once

namespace replicator::detail::cuda {

// Each of `kept` output elements is made of `reduced` elements, in `blocks` blocks.
struct ReduceExtents {
  static constexpr long long block = 4096;       // reduced elements in a block
  static constexpr long long few = 32;           // one thread takes up to this many alone
  static constexpr int columns = 32, rows = 16;  // chains of a block of reduce_columns
  long long kept = 1, reduced = 1, blocks = 1;
};

}  // namespace replicator::detail::cuda
