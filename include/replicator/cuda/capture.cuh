// SPDX-License-Identifier: Apache-2.0
// Captures a stream's work as a CUDA graph and replays it. Source: CUDA C++ Programming Guide, "CUDA Graphs", stream capture.
#pragma once

#include <cuda_runtime.h>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/hangs.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail::cuda {

namespace detail {

// The capture is of this thread only: other threads may meanwhile allocate memory for devices of their own.
inline void begin_capture(void* queue) { REPLICATOR_CUDA_CHECK(cudaStreamBeginCapture(stream_of(queue), cudaStreamCaptureModeThreadLocal)); }

inline void* end_capture(void* queue) {
  cudaGraph_t graph = nullptr;
  REPLICATOR_CUDA_CHECK(cudaStreamEndCapture(stream_of(queue), &graph));
  cudaGraphExec_t captured = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&captured, graph, 0);
  (void)cudaGraphDestroy(graph);
  REPLICATOR_CUDA_CHECK(status);
  return captured;
}

inline void abandon_capture(void* queue) noexcept {
  cudaGraph_t graph = nullptr;
  (void)cudaStreamEndCapture(stream_of(queue), &graph);
  if (graph) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();  // the cause has been reported
}

inline void replay(void* queue, void* captured) { REPLICATOR_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(captured), stream_of(queue))); }

inline void release_captured(int index, void* captured) noexcept {
  if (a_gpu_hangs) return;
  (void)cudaSetDevice(index);
  (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(captured));
}

}  // namespace detail

inline constexpr CaptureSupport capture{&detail::begin_capture, &detail::end_capture, &detail::abandon_capture, &detail::replay,
                                        &detail::release_captured};

}  // namespace replicator::detail::cuda
