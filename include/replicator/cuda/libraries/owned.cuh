// SPDX-License-Identifier: Apache-2.0
// Owners of the handles and descriptions that NVIDIA's libraries make.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/hangs.cuh>

namespace replicator::detail::cuda {

// A handle or description that `destroy` releases.
template <class T, auto destroy>
class Owned {
 public:
  explicit Owned(T value) : value_{value} {}
  Owned(Owned&& other) noexcept : value_{std::exchange(other.value_, nullptr)} {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (value_ && !a_gpu_hangs) (void)destroy(value_);  // cudnnDestroy waits for the GPU
  }
  T get() const { return value_; }

 private:
  T value_;
};

using DeviceBytes = Owned<void*, &cudaFree>;
using OwnedStream = Owned<cudaStream_t, &cudaStreamDestroy>;
using OwnedEvent = Owned<cudaEvent_t, &cudaEventDestroy>;

// Memory of the current GPU. Empty where that much is not free.
inline std::optional<DeviceBytes> device_bytes(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) == cudaSuccess) return std::optional<DeviceBytes>{std::in_place, memory};
  (void)cudaGetLastError();  // clears the error: the next check must not find it
  return std::nullopt;
}
// A stream of the current GPU that waits for no other.
inline OwnedStream make_stream() {
  cudaStream_t stream = nullptr;
  REPLICATOR_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return OwnedStream{stream};
}
// An event that notes the time.
inline OwnedEvent make_event() {
  cudaEvent_t event = nullptr;
  REPLICATOR_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return OwnedEvent{event};
}
inline int current_gpu() {
  int device = 0;
  REPLICATOR_CUDA_CHECK(cudaGetDevice(&device));
  return device;
}

// The handles that threads have left behind, by GPU. They are never destroyed: at the end of a program the library may already
// be gone, and destroying a handle then crashes.
template <class Handle>
struct FreeHandles {
  std::mutex gate;
  std::map<int, std::vector<Handle>> of_gpu;

  static FreeHandles& instance() {
    static auto& handles = *new FreeHandles;
    return handles;
  }
};

// A thread's handles, by GPU. When the thread ends, other threads may have them.
template <class Handle>
class HandlesOfThread {
 public:
  HandlesOfThread() = default;
  HandlesOfThread(const HandlesOfThread&) = delete;
  HandlesOfThread& operator=(const HandlesOfThread&) = delete;
  ~HandlesOfThread() {
    auto& free = FreeHandles<Handle>::instance();
    const std::lock_guard lock{free.gate};
    for (auto& [gpu, handle] : own_) free.of_gpu[gpu].push_back(std::move(handle));
  }

  template <class... Given>
  const Handle& of(int gpu, Given... given) {
    if (const auto known = own_.find(gpu); known != own_.end()) return known->second;
    auto& free = FreeHandles<Handle>::instance();
    {
      const std::lock_guard lock{free.gate};
      if (auto& left = free.of_gpu[gpu]; !left.empty()) {
        const auto taken = own_.emplace(gpu, std::move(left.back())).first;
        left.pop_back();
        return taken->second;
      }
    }
    return own_.try_emplace(gpu, given...).first->second;
  }

 private:
  std::map<int, Handle> own_;
};

// The calling thread's handle of a library for its current GPU. Made by Handle(given...) where no ended thread has left one. A
// handle is for one GPU, and not for several threads at a time.
template <class Handle, class... Given>
auto handle_for_current_gpu(Given... given) {
  thread_local HandlesOfThread<Handle> own;
  return own.of(current_gpu(), given...).get();
}

}  // namespace replicator::detail::cuda
