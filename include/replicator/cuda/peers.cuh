// SPDX-License-Identifier: Apache-2.0
// Lets GPUs of one machine read each other's memory, so that collectives between them need no host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include <replicator/core/dtype.hpp>
#include <replicator/core/reduction.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail::cuda {

namespace detail {

// Gives a GPU access to its peer's memory, or says why it cannot. Loads in kernels and copies then go straight to the peer's
// memory, over NVLink or PCIe.
inline std::string reach(int index, int peer) {
  const std::string refused = "cuda:" + std::to_string(index) + " cannot read the memory of cuda:" + std::to_string(peer);
  int possible = 0;
  REPLICATOR_CUDA_CHECK(cudaDeviceCanAccessPeer(&possible, index, peer));
  if (!possible) return refused;
  REPLICATOR_CUDA_CHECK(cudaSetDevice(index));
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaSuccess) return {};
  (void)cudaGetLastError();
  if (status == cudaErrorPeerAccessAlreadyEnabled) return {};
  return refused + " (" + cudaGetErrorString(status) + ")";
}

}  // namespace detail

template <class T>
__global__ void divide_elements(T* values, T divisor, std::int64_t elements) {
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) values[i] = values[i] / divisor;
}
// The same for bfloat16, which is divided as floats and then rounded.
template <class Word>
__global__ void divide_bfloat16(Word* values, float divisor, std::int64_t elements) {
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) values[i] = to_bfloat16(from_bfloat16(values[i]) / divisor);
}

// Divides a mean by `members`. Other reductions are complete already. For types that have means.
inline void finish(void* queue, DType dtype, Reduction reduction, std::byte* values, std::int64_t elements, int members) {
  if (reduction != Reduction::mean || members == 1 || elements == 0) return;
  const unsigned blocks = blocks_for(elements, block_threads);
  if (dtype == DType::bfloat16)
    divide_bfloat16<<<blocks, block_threads, 0, stream_of(queue)>>>(reinterpret_cast<std::uint16_t*>(values), static_cast<float>(members), elements);
  else if (dtype == DType::float64)
    divide_elements<<<blocks, block_threads, 0, stream_of(queue)>>>(reinterpret_cast<double*>(values), static_cast<double>(members), elements);
  else
    divide_elements<<<blocks, block_threads, 0, stream_of(queue)>>>(reinterpret_cast<float*>(values), static_cast<float>(members), elements);
  REPLICATOR_CUDA_CHECK(cudaGetLastError());
}

inline constexpr PeerSupport peers{&detail::reach, &finish};

}  // namespace replicator::detail::cuda
