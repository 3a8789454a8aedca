// SPDX-License-Identifier: Apache-2.0
// A stand-in on the host for the part of the CUDA runtime that kernels use. It comes before NVIDIA's on the include path of these
// tests. There are two devices that reach each other. Their memory is the host's, and is full of garbage when it is allocated.
// Queues do their work at once, or capture it as a graph.
#pragma once

#include <math.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "launch.hpp"

#include "intrinsics.h"

#define CUDART_VERSION 13000

inline void atomicMin(unsigned long long* at, unsigned long long value) {
  if (value < *at) *at = value;
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDeviceToHost
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice
};
enum {
  cudaStreamNonBlocking = 1,
  cudaHostAllocPortable = 1,
  cudaHostRegisterPortable = 1,
  cudaEventDefault = 0,
  cudaEventDisableTiming = 2,
  cudaEventInterprocess = 4,
  cudaIpcMemLazyEnablePeerAccess = 1
};
enum cudaDeviceAttr {
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};
struct cudaPointerAttributes {
  cudaMemoryType type;
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeThreadLocal
};
using cudaStream_t = on_host::Stream*;
struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraph_st*;

struct CUevent_st {
  double milliseconds = 0;  // by the clock, when it was recorded
  unsigned flags = 0;
};
using cudaEvent_t = CUevent_st*;

#include "library.hpp"

namespace on_host {
inline std::map<const char*, std::size_t> memory;       // blocks of device memory: address and bytes
inline std::size_t free_memory = std::size_t{1} << 32;  // more cannot be allocated at a time
inline std::atomic<double> gpu_time{0};                 // in milliseconds; it passes by pass() only
inline void pass(double milliseconds) { gpu_time.fetch_add(milliseconds); }
inline std::map<const char*, std::size_t> pinned;  // blocks of pinned host memory
inline std::map<const char*, int> opened;          // memory of "other processes": how often
inline thread_local int current_device = 0;
inline bool holds(const std::map<const char*, std::size_t>& blocks, const char* at) {
  auto behind = blocks.upper_bound(at);
  return behind != blocks.begin() && (--behind, at < behind->first + behind->second);
}
}  // namespace on_host

inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorName(cudaError_t error) { return error ? "cudaErrorStreamCapture" : "cudaSuccess"; }
inline const char* cudaGetErrorString(cudaError_t error) { return error ? "not while a stream captures" : "no error"; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 2, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int* possible, int, int) { return *possible = 1, cudaSuccess; }
inline cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  static bool enabled[2] = {};
  return std::exchange(enabled[peer], true) ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) { return on_host::current_device = device, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = on_host::current_device, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 0, cudaSuccess; }
struct cudaDeviceProp {
  char name[16];
  int major, minor;
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) { return *properties = {"a host", 0, 0}, cudaSuccess; }
inline cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  if (bytes > on_host::free_memory) return cudaErrorMemoryAllocation;
  const std::lock_guard lock{on_host::gate};
  (void)::posix_memalign(to, 256, bytes);  // exactly this size, so that AddressSanitizer sees accesses behind it
  std::memset(*to, 0xCD, bytes);
  on_host::memory[static_cast<char*>(*to)] = bytes;
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock{on_host::gate};
  on_host::memory.erase(static_cast<char*>(pointer));
  std::free(pointer);
  return cudaSuccess;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::lock_guard lock{on_host::gate};
  const auto* at = static_cast<const char*>(pointer);
  attributes->type = on_host::holds(on_host::memory, at) ? cudaMemoryTypeDevice : on_host::holds(on_host::pinned, at) ? cudaMemoryTypeHost
                                                                                                                      : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  const std::lock_guard lock{on_host::gate};
  (void)::posix_memalign(to, 256, bytes);
  on_host::pinned[static_cast<char*>(*to)] = bytes;
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* pointer) {
  const std::lock_guard lock{on_host::gate};
  on_host::pinned.erase(static_cast<char*>(pointer));
  std::free(pointer);
  return cudaSuccess;
}
inline cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  const std::lock_guard lock{on_host::gate};
  if (reinterpret_cast<std::uintptr_t>(memory) % 4096 != 0) return cudaErrorInvalidValue;  // stricter than CUDA, which pins pages with all that is in them
  if (on_host::holds(on_host::pinned, static_cast<char*>(memory))) return cudaErrorInvalidValue;
  on_host::pinned[static_cast<char*>(memory)] = bytes;
  return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock{on_host::gate};
  return on_host::pinned.erase(static_cast<char*>(memory)) ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) { return *event = new CUevent_st{0, flags}, cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t event, on_host::Stream*) { return event->milliseconds = on_host::gpu_time, cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return *milliseconds = static_cast<float>(end->milliseconds - begin->milliseconds), cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(on_host::Stream*, cudaEvent_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
// A handle is an address. Here a process opens its own, for want of another one.
struct cudaIpcMemHandle_t {
  char reserved[64];
};
struct cudaIpcEventHandle_t {
  char reserved[64];
};
inline cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  if (!on_host::memory.count(static_cast<char*>(memory))) return cudaErrorInvalidValue;  // not the beginning of an allocation
  std::memcpy(handle->reserved, &memory, sizeof memory);
  return cudaSuccess;
}
inline cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags) {
  std::memcpy(memory, handle.reserved, sizeof *memory);
  if (flags != cudaIpcMemLazyEnablePeerAccess || !on_host::memory.count(static_cast<char*>(*memory))) return cudaErrorInvalidResourceHandle;
  return ++on_host::opened[static_cast<char*>(*memory)], cudaSuccess;
}
inline cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return on_host::opened[static_cast<char*>(memory)]-- > 0 ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  if (event->flags != (cudaEventDisableTiming | cudaEventInterprocess)) return cudaErrorInvalidResourceHandle;
  std::memcpy(handle->reserved, &event, sizeof event);
  return cudaSuccess;
}
inline cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  std::memcpy(event, handle.reserved, sizeof *event);
  if (!*event) return cudaErrorInvalidResourceHandle;
  return *event = new CUevent_st{**event}, cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) { return *free = *total = std::size_t{1} << 32, cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  on_host::give(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  on_host::give(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = new on_host::Stream, cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!stream) return cudaSuccess;  // the default stream, which nobody captures
  stream->spoiled = stream->captures;
  return stream->captures ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) { return stream->captures = true, cudaSuccess; }
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const bool spoiled = stream->spoiled;
  *graph = spoiled ? nullptr : new CUgraph_st{stream->captured};
  *stream = {};
  return spoiled ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* captured, cudaGraph_t graph, unsigned long long) {
  return *captured = new CUgraph_st{*graph}, cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t captured, cudaStream_t stream) {
  for (const auto& work : captured->work) on_host::give(stream, work);
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t captured) { return delete captured, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
