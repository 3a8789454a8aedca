// SPDX-License-Identifier: Apache-2.0
// Sizes of launches in which threads take elements in turns.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include <replicator/cuda/rtc/threads.cuh>

namespace replicator::detail::cuda {

// Number of blocks for `units`, of which a block takes `per_block` at a time. At most 65,536, which fills any GPU; blocks take
// the rest in turns.
inline unsigned blocks_for(std::int64_t units, std::int64_t per_block) {
  return static_cast<unsigned>(std::min<std::int64_t>((units + per_block - 1) / per_block, 1 << 16));
}

inline cudaStream_t stream_of(void* queue) { return static_cast<cudaStream_t>(queue); }

}  // namespace replicator::detail::cuda
