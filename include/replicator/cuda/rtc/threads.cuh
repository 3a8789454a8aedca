// SPDX-License-Identifier: Apache-2.0
// Which elements a thread takes. The files of this folder are compiled by nvcc and, while a program runs, by NVRTC. So they
// include nothing of the host.
#pragma once

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace replicator::detail::cuda {

inline constexpr int block_threads = 256;

// This thread's first element, and the distance to its next.
template <class Index = long long>
__device__ Index first_element() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
template <class Index = long long>
__device__ Index element_stride() {
  return static_cast<Index>(gridDim.x) * blockDim.x;
}

}  // namespace replicator::detail::cuda
