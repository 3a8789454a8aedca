// SPDX-License-Identifier: Apache-2.0
// The extents of a reduction, for code of the host and of the device.
#pragma once

namespace replicator::detail::cuda {

// The kept axes come first in the numbering of the domain: element j of output element k is k * reduced + j.
struct ReduceExtents {
  static constexpr long long block = 4096;        // reduced elements in a block
  static constexpr long long few = 32;            // one thread takes up to this many alone
  static constexpr int columns = 32, lanes = 16;  // of a block of threads of reduce_columns
  long long kept = 1, reduced = 1, blocks = 1;
};

}  // namespace replicator::detail::cuda
