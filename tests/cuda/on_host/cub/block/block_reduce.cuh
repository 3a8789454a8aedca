// SPDX-License-Identifier: Apache-2.0
// The part of CUB's BlockReduce that the kernels use, on the host. Thread 0 combines the values of all threads of the
// block, neighbours first.
#pragma once

#include <cuda_runtime.h>

namespace cub {

template <class T, int threads>
class BlockReduce {
 public:
  struct TempStorage {
    T values[threads];
  };
  explicit BlockReduce(TempStorage& storage) : values_{storage.values} {}

  // In thread 0; what the others get is not the result.
  template <class Combine>
  T Reduce(T value, Combine combine) {
    values_[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x > 0) return value;
    for (int distance = 1; distance < threads; distance *= 2)
      for (int i = 0; i + distance < threads; i += 2 * distance) values_[i] = combine(values_[i], values_[i + distance]);
    return values_[0];
  }

 private:
  T* values_;
};

}  // namespace cub
