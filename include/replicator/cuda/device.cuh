// SPDX-License-Identifier: Apache-2.0
// Registers NVIDIA's GPUs as a kind of device: cuda:i is GPU i of the machine. A program that includes this also starts without a driver.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <string>

#include <replicator/cuda/capture.cuh>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/fold.cuh>
#include <replicator/cuda/hangs.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/peers.cuh>
#include <replicator/cuda/sharing.cuh>
#include <replicator/cuda/staging.cuh>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail::cuda {

// Says why no GPU can be used. Empty where `count` GPUs can.
inline std::string missing_driver(int& count) {
  count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return {};
  (void)cudaGetLastError();
  count = 0;  // a failed call need not have written it
  const std::string found = std::string{" (cudaGetDeviceCount: "} + cudaGetErrorString(status) + ")";
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no CUDA driver was found" + found;
  if (status == cudaErrorInsufficientDriver)
    return "the CUDA driver knows CUDA " + std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10) + ", this program needs " +
           std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10) + found;
  return "no GPU was found" + found;
}

namespace detail {

inline void require(int index) {
  const std::string asked = "cuda:" + std::to_string(index) + " was asked for, but ";
  int count = 0;
  if (const std::string reason = missing_driver(count); !reason.empty())
    throw DeviceError{asked + reason + ": install NVIDIA's driver, or use cpu:0"};
  if (index >= count)
    throw DeviceError{asked + "this machine has " + std::to_string(count) + " GPU(s): name cuda:0" +
                      (count > 1 ? " to cuda:" + std::to_string(count - 1) : "")};
}

// Makes the GPU current in the calling thread.
inline void enter(int index) { REPLICATOR_CUDA_CHECK(cudaSetDevice(index)); }

inline std::byte* allocate(int index, std::size_t bytes) {
  enter(index);
  void* memory = nullptr;
  if (const cudaError_t status = cudaMalloc(&memory, bytes); status != cudaSuccess) {
    (void)cudaGetLastError();
    throw DeviceError{"cuda:" + std::to_string(index) + " has no room for " + std::to_string(bytes) + " bytes of the step's buffers (" +
                      cudaGetErrorString(status) + "): use smaller batches, or more devices"};
  }
  return static_cast<std::byte*>(memory);
}
// Ignores errors: the call that caused them has reported them.
inline void release(int index, std::byte* memory, std::size_t) noexcept {
  if (a_gpu_hangs) return;
  (void)cudaSetDevice(index);
  (void)cudaFree(memory);
}

inline void* make_queue(int index) {
  enter(index);
  cudaStream_t stream = nullptr;
  REPLICATOR_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
inline void destroy_queue(int index, void* queue) noexcept {
  if (a_gpu_hangs) return;
  (void)cudaSetDevice(index);
  (void)cudaStreamSynchronize(stream_of(queue));
  (void)cudaStreamDestroy(stream_of(queue));
}
inline void synchronise(void* queue) {
  if (a_gpu_hangs) throw DeviceError{"a GPU of this process hangs: start the program again"};
  REPLICATOR_CUDA_CHECK(cudaStreamSynchronize(stream_of(queue)));
}
inline void abandon() noexcept { a_gpu_hangs = true; }
inline bool abandoned() noexcept { return a_gpu_hangs; }

inline bool on_device(const std::byte* pointer) {
  cudaPointerAttributes attributes{};
  REPLICATOR_CUDA_CHECK(cudaPointerGetAttributes(&attributes, pointer));
  return attributes.type == cudaMemoryTypeDevice;
}

// Copies of pageable host memory block the caller while they are staged. That is correct but slow; StagingSupport has pinned memory.
inline void copy(void* queue, std::byte* to, const std::byte* from, std::size_t bytes) {
  const bool to_device = on_device(to), from_device = on_device(from);
  if (!to_device && !from_device) {  // an earlier copy to the host may still be under way
    synchronise(queue);
    std::memcpy(to, from, bytes);
    return;
  }
  const auto direction = !from_device ? cudaMemcpyHostToDevice
                         : to_device  ? cudaMemcpyDeviceToDevice
                                      : cudaMemcpyDeviceToHost;
  REPLICATOR_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, direction, stream_of(queue)));
}

inline std::size_t memory(int index) {
  REPLICATOR_CUDA_CHECK(cudaSetDevice(index));
  std::size_t free = 0, total = 0;
  REPLICATOR_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return total;
}

}  // namespace detail

inline constexpr DeviceSupport support{&detail::require, &detail::allocate, &detail::release, &detail::make_queue,
                                       &detail::destroy_queue, &detail::enter, &detail::copy, &fold,
                                       &detail::synchronise, &detail::abandon, &detail::abandoned, &detail::memory, &staging, &capture,
                                       &peers, &sharing};

inline const bool device_registered = [] {
  device_support[static_cast<std::size_t>(DeviceKind::cuda)].store(&support);
  return true;
}();

}  // namespace replicator::detail::cuda
