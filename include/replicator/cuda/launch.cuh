// SPDX-License-Identifier: Apache-2.0
// The shape of launches in which threads take elements in turn.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace replicator::cuda {

inline constexpr int block_threads = 256;

// Blocks for `units`, of which a block takes `per_block` at a time: enough to fill any GPU, the rest by turns.
inline unsigned blocks_for(std::int64_t units, std::int64_t per_block) {
  return static_cast<unsigned>(std::min<std::int64_t>((units + per_block - 1) / per_block, 1 << 16));
}

// This thread's first element, and how far it is to its next.
inline __device__ std::int64_t first_element() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
inline __device__ std::int64_t element_stride() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

inline cudaStream_t stream_of(void* queue) { return static_cast<cudaStream_t>(queue); }

}  // namespace replicator::cuda
