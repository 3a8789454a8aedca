// SPDX-License-Identifier: Apache-2.0
// Lets other processes of the machine open memory and events of this process's GPUs (CUDA IPC). **No GPU has run this yet.**
//
// - Only a whole allocation of cudaMalloc has a handle. The driver cuts small ones from blocks of 2 MiB and shares the whole block,
//   so shared memory takes whole blocks, and nothing else of this process can be read.
// - A GPU may be opened that CUDA_VISIBLE_DEVICES hides from this process.
// Source: CUDA C++ Programming Guide, "Interprocess Communication"; CUDA Runtime API, cudaIpcOpenMemHandle.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <string>

#include <replicator/core/error.hpp>
#include <replicator/cuda/hangs.cuh>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail::cuda {

namespace detail {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(SharedHandle) && sizeof(cudaIpcEventHandle_t) == sizeof(SharedHandle));
inline constexpr std::size_t shared_block = std::size_t{2} << 20;

// Throws DeviceError unless the call has succeeded. `what`: "share its memory".
inline void require_shared(cudaError_t status, int index, const char* what, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw DeviceError{"cuda:" + std::to_string(index) + " cannot " + what + " (" + call + " gave " + cudaGetErrorName(status) + ": " +
                    cudaGetErrorString(status) + ")"};
}

inline std::byte* allocate_shared(int index, std::size_t bytes, SharedHandle& handle) {
  require_shared(cudaSetDevice(index), index, "share its memory with other processes", "cudaSetDevice");
  void* memory = nullptr;
  require_shared(cudaMalloc(&memory, (bytes + shared_block - 1) / shared_block * shared_block), index, "allocate memory to share with other processes",
                 "cudaMalloc");
  cudaIpcMemHandle_t given{};
  if (const cudaError_t status = cudaIpcGetMemHandle(&given, memory); status != cudaSuccess) {
    (void)cudaFree(memory);
    require_shared(status, index, "share its memory with other processes", "cudaIpcGetMemHandle");
  }
  std::memcpy(handle.data(), &given, sizeof given);
  return static_cast<std::byte*>(memory);
}

// Enables access to the other GPU where that is needed.
inline const std::byte* open_shared(int index, const SharedHandle& handle) {
  constexpr auto what = "open the memory of a GPU of another process";
  require_shared(cudaSetDevice(index), index, what, "cudaSetDevice");
  cudaIpcMemHandle_t given{};
  std::memcpy(&given, handle.data(), sizeof given);
  void* memory = nullptr;
  require_shared(cudaIpcOpenMemHandle(&memory, given, cudaIpcMemLazyEnablePeerAccess), index, what, "cudaIpcOpenMemHandle");
  return static_cast<const std::byte*>(memory);
}
inline void close_shared(int index, const std::byte* memory) noexcept {
  if (a_gpu_hangs) return;
  (void)cudaSetDevice(index);
  (void)cudaIpcCloseMemHandle(const_cast<std::byte*>(memory));
}

inline void* make_shared_event(int index, SharedHandle& handle) {
  constexpr auto what = "share an event with other processes";
  require_shared(cudaSetDevice(index), index, what, "cudaSetDevice");
  cudaEvent_t event = nullptr;
  require_shared(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess), index, what, "cudaEventCreateWithFlags");
  cudaIpcEventHandle_t given{};
  if (const cudaError_t status = cudaIpcGetEventHandle(&given, event); status != cudaSuccess) {
    (void)cudaEventDestroy(event);
    require_shared(status, index, what, "cudaIpcGetEventHandle");
  }
  std::memcpy(handle.data(), &given, sizeof given);
  return event;
}
inline void* open_shared_event(int index, const SharedHandle& handle) {
  constexpr auto what = "open an event of another process";
  require_shared(cudaSetDevice(index), index, what, "cudaSetDevice");
  cudaIpcEventHandle_t given{};
  std::memcpy(&given, handle.data(), sizeof given);
  cudaEvent_t event = nullptr;
  require_shared(cudaIpcOpenEventHandle(&event, given), index, what, "cudaIpcOpenEventHandle");
  return event;
}

}  // namespace detail

inline constexpr SharingSupport sharing{&detail::allocate_shared, &detail::open_shared, &detail::close_shared, &detail::make_shared_event,
                                        &detail::open_shared_event};

}  // namespace replicator::detail::cuda
