// SPDX-License-Identifier: Apache-2.0
// The extents of a reduction, for host and device.
#pragma once

namespace replicator::detail::cuda {

// The domain is numbered with the kept axes first: element j of output element k is k * reduced + j.
struct ReduceExtents {
  static constexpr long long block = 4096;        // reduced elements
  static constexpr long long few = 32;            // so many one thread takes alone
  static constexpr int columns = 32, lanes = 16;  // of a block of threads of reduce_columns
  long long kept = 1, reduced = 1, blocks = 1;
};

}  // namespace replicator::detail::cuda
