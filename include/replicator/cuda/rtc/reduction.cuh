// SPDX-License-Identifier: Apache-2.0
// The bodies of reductions, for compiled and for interpreted expressions (see map.cuh).
//
// The order of combination depends on shape, axes and layout only. The reduced elements of an output are cut into blocks of
// 4,096, in the order in which they lie in memory. A fixed number of threads takes a block's elements in turns. One tree combines
// the results of these threads, and a binary counter's tree combines the blocks. One thread alone combines up to 32 elements in order.
#pragma once

#include <replicator/cuda/rtc/reduce_extents.hpp>
#include <replicator/cuda/rtc/threads.cuh>

namespace replicator::detail::cuda {

// Combines the values of all threads of a block, which must all call it. Thread 0 gets the result; the others get some part of
// it. The order is that of CUB's BlockReduce: a tree combines the lanes of a warp, neighbours first, and then the warps follow
// one after the other. CUB itself cannot be used, because its headers are not there where NVRTC compiles this.
template <class T, class Combine>
__device__ T reduce_block(T value, Combine combine) {
  constexpr int lanes = 32, warps = block_threads / lanes;
  __shared__ T of_warps[warps];
  const int lane = threadIdx.x % lanes, warp = threadIdx.x / lanes;
  for (int distance = 1; distance < lanes; distance *= 2) {
    const T other = __shfl_down_sync(0xffffffffu, value, distance);
    if (lane + distance < lanes) value = combine(value, other);
  }
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < warps; ++w) value = combine(value, of_warps[w]);
  __syncthreads();  // of_warps is used again
  return value;
}

// One thread per output element.
template <class T, class Program, class Combine>
__device__ void reduce_few(const Program& program, Combine combine, ReduceExtents extents) {
  T values[Program::slots], sums[Program::most_outputs];
  for (long long k = first_element(); k < extents.kept; k += element_stride()) {
    for (int o = 0; o < program.output_count; ++o) sums[o] = combine.identity;
    for (long long j = 0; j < extents.reduced; ++j) {
      program.evaluate(k * extents.reduced + j, values);
      for (int o = 0; o < program.output_count; ++o) sums[o] = combine(sums[o], values[program.slot_of(o)]);
    }
    for (int o = 0; o < program.output_count; ++o) program.store(o, k, sums[o]);
  }
}

// One block of threads per block of an output element. Writes partials[o][k * blocks + b].
template <class T, class Program, class Combine>
__device__ void reduce_blocks(const Program& program, Combine combine, ReduceExtents extents, T* partials) {
  T values[Program::slots], sums[Program::most_outputs];
  const long long units = extents.kept * extents.blocks;
  for (long long unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const long long k = unit / extents.blocks, b = unit - k * extents.blocks;
    const long long behind = (b + 1) * ReduceExtents::block, end = behind < extents.reduced ? behind : extents.reduced;
    for (int o = 0; o < program.output_count; ++o) sums[o] = combine.identity;
    for (long long j = b * ReduceExtents::block + threadIdx.x; j < end; j += block_threads) {
      program.evaluate(k * extents.reduced + j, values);
      for (int o = 0; o < program.output_count; ++o) sums[o] = combine(sums[o], values[program.slot_of(o)]);
    }
    for (int o = 0; o < program.output_count; ++o) {
      const T sum = reduce_block(sums[o], combine);
      if (threadIdx.x == 0) partials[o * units + unit] = sum;
    }
  }
}

// One block of threads per block of 32 neighbouring output elements. Element j of a block goes to lane j mod 16, and a tree
// combines the lanes.
template <class T, class Program, class Combine>
__device__ void reduce_columns(const Program& program, Combine combine, ReduceExtents extents, T* partials) {
  constexpr int columns = ReduceExtents::columns, lanes = ReduceExtents::lanes;
  __shared__ T shared[lanes][columns];
  T values[Program::slots], sums[Program::most_outputs];
  const int column = static_cast<int>(threadIdx.x) % columns, lane = static_cast<int>(threadIdx.x) / columns;
  const long long groups = (extents.kept + columns - 1) / columns;
  for (long long unit = blockIdx.x; unit < groups * extents.blocks; unit += gridDim.x) {
    const long long b = unit / groups, k = (unit - b * groups) * columns + column;
    const long long behind = (b + 1) * ReduceExtents::block;
    const long long end = k >= extents.kept          ? 0
                          : behind < extents.reduced ? behind
                                                     : extents.reduced;
    for (int o = 0; o < program.output_count; ++o) sums[o] = combine.identity;
    for (long long j = b * ReduceExtents::block + lane; j < end; j += lanes) {
      program.evaluate(k * extents.reduced + j, values);
      for (int o = 0; o < program.output_count; ++o) sums[o] = combine(sums[o], values[program.slot_of(o)]);
    }
    for (int o = 0; o < program.output_count; ++o) {
      shared[lane][column] = sums[o];
      for (int half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) shared[lane][column] = combine(shared[lane][column], shared[lane + half][column]);
      }
      if (lane == 0 && k < extents.kept) partials[(o * extents.kept + k) * extents.blocks + b] = shared[0][column];
      __syncthreads();  // the memory is used again
    }
  }
}

// Combines the blocks by the binary counter's tree, one thread per output element.
template <class T, class Program, class Combine>
__device__ void reduce_tree(const Program& program, Combine combine, ReduceExtents extents, T* partials) {
  for (long long k = first_element(); k < extents.kept; k += element_stride())
    for (int o = 0; o < program.output_count; ++o) {
      const T* blocks = partials + (o * extents.kept + k) * extents.blocks;
      T stack[64];
      int depth = 0;
      for (long long b = 0; b < extents.blocks; ++b) {
        T sum = blocks[b];
        for (long long turns = b; turns & 1; turns >>= 1) sum = combine(stack[--depth], sum);
        stack[depth++] = sum;
      }
      T sum = stack[--depth];
      while (depth > 0) sum = combine(stack[--depth], sum);
      program.store(o, k, sum);
    }
}

}  // namespace replicator::detail::cuda
