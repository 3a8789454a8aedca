// SPDX-License-Identifier: Apache-2.0
// Finds the largest elements of lines along an axis on GPUs, one after the other, for argmax and for top_k with a small k. The
// order is total, so the result does not depend on the order of comparisons.
#pragma once

#include <cuda_runtime.h>

#include <cub/block/block_reduce.cuh>

#include <cstddef>
#include <cstdint>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/ops/movement/around_axis.hpp>

namespace replicator::detail::cuda {

// An element and its place in the line. Place -1 means that there is no element.
template <class T>
struct Placed {
  T value;
  std::int32_t place;
};

// NaN first, then descending values, then ascending places. No element comes last.
template <class T>
__device__ bool ranked_before(const Placed<T>& a, const Placed<T>& b) {
  if (a.place < 0 || b.place < 0) return a.place >= 0;
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && a.value != b.value) return a.value > b.value;
  return a.place < b.place;
}

struct First {
  template <class T>
  __device__ Placed<T> operator()(const Placed<T>& a, const Placed<T>& b) const {
    return ranked_before(b, a) ? b : a;
  }
};

// One thread walks along a line.
struct OneThread {
  static constexpr int threads = block_threads, lines = block_threads;  // of a block
  static constexpr int walkers = 1;
  static __device__ std::int64_t first_line() { return first_element(); }
  static __device__ std::int64_t line_stride() { return element_stride(); }
  static __device__ int walker() { return 0; }
  template <class T>
  static __device__ Placed<T> first_of_all(Placed<T> own) {
    return own;
  }
};
// A block of threads walks along a line.
template <int block>
struct OneBlock {
  static constexpr int threads = block, lines = 1;
  static constexpr int walkers = block;
  static __device__ std::int64_t first_line() { return blockIdx.x; }
  static __device__ std::int64_t line_stride() { return gridDim.x; }
  static __device__ int walker() { return static_cast<int>(threadIdx.x); }
  template <class T>
  static __device__ Placed<T> first_of_all(Placed<T> own) {
    using Reduction = cub::BlockReduce<Placed<T>, block>;
    __shared__ typename Reduction::TempStorage storage;
    __shared__ Placed<T> first;
    own = Reduction(storage).Reduce(own, First{});
    if (threadIdx.x == 0) first = own;
    __syncthreads();
    own = first;
    __syncthreads();  // storage and first are used again
    return own;
  }
};

// Each round takes the first element after the one that was taken before. `values` may be null.
template <class T, class Walk>
__global__ void find_largest(AroundAxis around, DType dtype, std::int64_t rounds, const std::byte* x, std::byte* values, std::int32_t* places) {
  for (std::int64_t line = Walk::first_line(); line < around.outer * around.inner; line += Walk::line_stride()) {
    const std::int64_t outer = line / around.inner, inner = line % around.inner;
    Placed<T> taken{T{}, -1};
    for (std::int64_t round = 0; round < rounds; ++round) {
      Placed<T> best{T{}, -1};
      for (std::int64_t at = Walk::walker(); at < around.extent; at += Walk::walkers) {
        const Placed<T> own{load<T>(dtype, x, (outer * around.extent + at) * around.inner + inner), static_cast<std::int32_t>(at)};
        if (round == 0 || ranked_before(taken, own)) best = First{}(best, own);
      }
      taken = Walk::first_of_all(best);
      if (Walk::walker() > 0) continue;
      const std::int64_t to = (outer * rounds + round) * around.inner + inner;
      if (values) store(dtype, values, to, taken.value);
      places[to] = taken.place;
    }
  }
}

// One thread walks along a short line. It also walks along lines that lie side by side, where they are enough to fill a GPU:
// neighbouring threads then read neighbours.
template <class F>
void visit_walk(const AroundAxis& around, F&& f) {
  if (around.extent <= 32 || (around.inner >= 32 && around.outer * around.inner >= 1 << 14)) return f.template operator()<OneThread>();
  if (around.extent <= 1024) return f.template operator()<OneBlock<32>>();
  f.template operator()<OneBlock<block_threads>>();
}

inline void launch_find_largest(const AroundAxis& around, DType dtype, std::int64_t rounds, const std::byte* x, std::byte* values, std::byte* places,
                                cudaStream_t stream) {
  const std::int64_t lines = around.outer * around.inner;
  if (lines == 0) return;
  visit_compute(compute_type(dtype), [&]<class T>() {
    visit_walk(around, [&]<class Walk>() {
      find_largest<T, Walk><<<blocks_for(lines, Walk::lines), Walk::threads, 0, stream>>>(around, dtype, rounds, x, values,
                                                                                          reinterpret_cast<std::int32_t*>(places));
    });
  });
  REPLICATOR_CUDA_CHECK(cudaGetLastError());
}

}  // namespace replicator::detail::cuda
