// SPDX-License-Identifier: Apache-2.0
// Owners of the handles and descriptions that NVIDIA's libraries make.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <utility>

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

// The calling thread's handle of a library for its current GPU. The first call makes it by Handle(given...). A handle is for one
// GPU, and not for several threads at a time.
template <class Handle, class... Given>
auto handle_for_current_gpu(Given... given) {
  thread_local std::map<int, Handle> own;
  int device = 0;
  REPLICATOR_CUDA_CHECK(cudaGetDevice(&device));
  return own.try_emplace(device, given...).first->second.get();
}

}  // namespace replicator::detail::cuda
