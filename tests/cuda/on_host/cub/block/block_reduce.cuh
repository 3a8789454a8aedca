// SPDX-License-Identifier: Apache-2.0
// CUB's reduction of a block, for fibers: thread 0 has the result, the others some part of it.
#pragma once

#include <cuda_runtime.h>

namespace cub {

template <class T, int threads>
class BlockReduce {
 public:
  struct TempStorage {
    T values[threads];
  };
  explicit BlockReduce(TempStorage& storage) : storage_{storage} {}

  template <class F>
  T Reduce(T value, F combine) {
    storage_.values[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x != 0) return value;
    for (int i = 1; i < threads; ++i) value = combine(value, storage_.values[i]);
    return value;
  }

 private:
  TempStorage& storage_;
};

}  // namespace cub
