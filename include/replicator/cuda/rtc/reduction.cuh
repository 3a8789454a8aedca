// SPDX-License-Identifier: Apache-2.0
// The bodies of reductions, whoever evaluates the expression (see map.cuh). The order depends on shape, axes and layout only: the reduced
// elements of an output, in the order in which they lie in memory, are cut into blocks of 4,096; a fixed number of threads takes a block's
// elements in turns, and a tree their results; a binary counter's tree the blocks.
#pragma once

#include <replicator/cuda/rtc/reduce_extents.hpp>
#include <replicator/cuda/rtc/threads.cuh>

namespace replicator::detail::cuda {

// The values of all threads of a block, in thread 0; the other threads have some part of it. The order is that of CUB's BlockReduce,
// whose headers are not there where NVRTC compiles this: lanes of a warp in a tree whose nodes are neighbours first, then the warps one after
// the other. All threads of the block must call it.
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

// A thread for each output element.
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

// A block of threads for each block of an output element. partials[o][k * blocks + b]
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

// A block of threads for a block of 32 neighbouring output elements: element j of a block goes to lane j mod 16, a tree takes the lanes.
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

// The binary counter's tree over the blocks, a thread for each output element.
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
