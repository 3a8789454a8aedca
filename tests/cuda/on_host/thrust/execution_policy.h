// SPDX-License-Identifier: Apache-2.0
// The part of Thrust's execution policies that the kernels use, on the host.
#pragma once

#include <cuda_runtime.h>

namespace thrust::cuda {

struct OnStream {
  cudaStream_t stream;
};
struct ParNosync {
  OnStream on(cudaStream_t stream) const { return {stream}; }
};
inline constexpr ParNosync par_nosync{};

}  // namespace thrust::cuda
