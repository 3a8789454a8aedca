// SPDX-License-Identifier: Apache-2.0
// Pinned host memory, with which copies run beside kernels, and events between streams.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/hangs.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail::cuda {

namespace detail {

inline std::byte* allocate_host(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) == cudaSuccess) return static_cast<std::byte*>(memory);
  (void)cudaGetLastError();
  return nullptr;
}
inline void release_host(std::byte* memory, std::size_t) noexcept {
  if (!a_gpu_hangs) (void)cudaFreeHost(memory);
}

inline bool pin(std::byte* memory, std::size_t bytes) {
  if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
  (void)cudaGetLastError();
  return false;
}
inline void unpin(std::byte* memory) noexcept {
  if (!a_gpu_hangs) (void)cudaHostUnregister(memory);
}

inline cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

inline void* make_event(int index) {
  REPLICATOR_CUDA_CHECK(cudaSetDevice(index));
  cudaEvent_t event = nullptr;
  REPLICATOR_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
inline void destroy_event(int index, void* event) noexcept {
  if (a_gpu_hangs) return;
  (void)cudaSetDevice(index);
  (void)cudaEventDestroy(event_of(event));
}
inline void record_event(void* queue, void* event) { REPLICATOR_CUDA_CHECK(cudaEventRecord(event_of(event), stream_of(queue))); }
inline void wait_event(void* queue, void* event) { REPLICATOR_CUDA_CHECK(cudaStreamWaitEvent(stream_of(queue), event_of(event), 0)); }
inline void await_event(void* event) { REPLICATOR_CUDA_CHECK(cudaEventSynchronize(event_of(event))); }
inline bool has_happened(void* event) {
  const cudaError_t status = cudaEventQuery(event_of(event));
  if (status != cudaErrorNotReady) REPLICATOR_CUDA_CHECK(status);
  return status == cudaSuccess;
}

}  // namespace detail

inline constexpr StagingSupport staging{&detail::allocate_host, &detail::release_host, &detail::pin,
                                        &detail::unpin, &detail::make_event, &detail::destroy_event,
                                        &detail::record_event, &detail::wait_event, &detail::await_event,
                                        &detail::has_happened};

}  // namespace replicator::detail::cuda
