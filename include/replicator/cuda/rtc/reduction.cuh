// SPDX-License-Identifier: Apache-2.0
// The bodies of reductions, for compiled and for interpreted expressions (see map.cuh).
//
// The order of combination depends on shape, axes and layout only. The reduced elements of an output are cut into blocks of
// 4,096, in the order in which they lie in memory. A fixed number of chains takes a block's elements in turns. One tree combines
// the results of these chains, and a binary counter's tree combines the blocks (partials.cuh). One thread alone combines up to 32
// elements in order.
//
// A thread has Program::lanes neighbouring chains, and loads an element for each of them at once.
#pragma once

#include <replicator/cuda/rtc/partials.cuh>
#include <replicator/cuda/rtc/reduce_extents.hpp>
#include <replicator/cuda/rtc/threads.cuh>

namespace replicator::detail::cuda {

// Combines the groups first, first + stride, ... of elements, in this order. results[o * lanes + l] gets output o of lane l.
template <class T, class Program, class Combine>
__device__ void reduce_groups(const Program& program, Combine combine, typename Program::Index first, typename Program::Index stride, int groups, T* results) {
  constexpr int lanes = Program::lanes;
  T values[Program::slots * lanes];
  for (int o = 0; o < program.output_count * lanes; ++o) results[o] = combine.identity;
  for (int turn = 0; turn < groups; ++turn) {
    program.evaluate(first + turn * stride, values);
    for (int o = 0; o < program.output_count; ++o)
      for (int l = 0; l < lanes; ++l) results[o * lanes + l] = combine(results[o * lanes + l], values[program.slot_of(o) * lanes + l]);
  }
}

// Combines the chains of a block of threads; all its threads must call it. Thread 0 gets the result. A tree combines 32 chains,
// neighbours first, and then these results follow one after the other. That is the order of CUB's BlockReduce for 256 threads.
// CUB itself cannot be used, because its headers are not there where NVRTC compiles this.
template <int lanes, class T, class Combine>
__device__ T reduce_block(T* chains, Combine combine, T* shared) {
  constexpr int threads = 32 / lanes, trees = block_threads / 32;  // a tree's threads
  for (int distance = 1; distance < lanes; distance *= 2)
    for (int l = 0; l < lanes; l += 2 * distance) chains[l] = combine(chains[l], chains[l + distance]);
  T value = chains[0];
  const int place = static_cast<int>(threadIdx.x) % threads;
  for (int distance = 1; distance < threads; distance *= 2) {
    const T other = __shfl_down_sync(0xffffffffu, value, distance);
    if (place + distance < threads) value = combine(value, other);
  }
  if (place == 0) shared[threadIdx.x / threads] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int tree = 1; tree < trees; ++tree) value = combine(value, shared[tree]);
  __syncthreads();  // the memory is used again
  return value;
}

// Stores the results of one of several blocks, one for each output. Where there is only one block, they are the outputs' elements.
template <class T, class Program>
__device__ void put_block(const Program& program, ReduceExtents extents, T* partials, long long k, long long b, const T* results) {
  if (extents.blocks == 1) return program.finish(k, results);
  for (int o = 0; o < program.output_count; ++o) partials[(o * extents.blocks + b) * extents.kept + k] = results[o];
}

// One thread per output element. Element j of output element k has the number k * reduced + j.
template <class T, class Program, class Combine>
__device__ void reduce_few(const Program& program, Combine combine, ReduceExtents extents) {
  T results[Program::most_outputs];
  for (long long k = first_element(); k < extents.kept; k += element_stride()) {
    reduce_groups(program, combine, static_cast<typename Program::Index>(k * extents.reduced), 1, static_cast<int>(extents.reduced), results);
    program.finish(k, results);
  }
}

// One block of threads per block of an output element. Element j of a block goes to chain j mod 256. Elements are numbered as for
// reduce_few. There is a counter for each output element.
template <class T, class Program, class Combine>
__device__ void reduce_blocks(const Program& program, Combine combine, ReduceExtents extents, T* partials, unsigned* counters) {
  constexpr int lanes = Program::lanes, threads = block_threads / lanes;
  __shared__ T shared[threads];
  T chains[Program::most_outputs * lanes], results[Program::most_outputs];
  for (long long unit = blockIdx.x; unit < extents.kept * extents.blocks; unit += gridDim.x) {
    const long long k = unit / extents.blocks, b = unit - k * extents.blocks, left = extents.reduced - b * ReduceExtents::block;
    const int groups = static_cast<int>(left < ReduceExtents::block ? left : ReduceExtents::block) / lanes;
    const long long first = (k * extents.reduced + b * ReduceExtents::block) / lanes + threadIdx.x;
    reduce_groups(program, combine, static_cast<typename Program::Index>(first), threads, (groups - static_cast<int>(threadIdx.x) + threads - 1) / threads, chains);
    for (int o = 0; o < program.output_count; ++o) results[o] = reduce_block<lanes>(chains + o * lanes, combine, shared);
    if (threadIdx.x == 0) put_block(program, extents, partials, k, b, results);
    if (extents.blocks > 1 && is_last_block(counters + k, extents.blocks)) combine_partials<1>(program, combine, extents, partials, k, shared);
  }
}

// One block of threads per block of 32 neighbouring output elements. Element j of a block goes to chain j mod 16, and a tree
// combines the chains. Element j of output element k has the number j * kept + k. There is a counter for each 32 output elements.
template <class T, class Program, class Combine>
__device__ void reduce_columns(const Program& program, Combine combine, ReduceExtents extents, T* partials, unsigned* counters) {
  using Index = typename Program::Index;
  constexpr int columns = ReduceExtents::columns, rows = ReduceExtents::rows, lanes = Program::lanes, across = columns / lanes, threads = across * rows;
  __shared__ T shared[rows * columns];
  T chains[Program::most_outputs * lanes], results[Program::most_outputs];
  const int thread = static_cast<int>(threadIdx.x), column = thread % across * lanes, row = thread / across;
  const long long tiles = (extents.kept + columns - 1) / columns;
  for (long long unit = blockIdx.x; unit < tiles * extents.blocks; unit += gridDim.x) {
    const long long b = unit / tiles, tile = unit - b * tiles, k = tile * columns, left = extents.reduced - b * ReduceExtents::block;
    const int elements = k + column >= extents.kept ? 0 : static_cast<int>(left < ReduceExtents::block ? left : ReduceExtents::block);
    const long long first = ((b * ReduceExtents::block + row) * extents.kept + k + column) / lanes;
    reduce_groups(program, combine, static_cast<Index>(first), static_cast<Index>(extents.kept / lanes * rows), (elements - row + rows - 1) / rows, chains);
    for (int o = 0; o < program.output_count; ++o) {
      for (int l = 0; l < lanes; ++l) shared[row * columns + column + l] = chains[o * lanes + l];
      for (int half = rows / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int i = thread; i < half * columns; i += threads) shared[i] = combine(shared[i], shared[i + half * columns]);
      }
      if (thread < columns) results[o] = shared[thread];  // each thread takes what it combined
      __syncthreads();                                    // the memory is used again
    }
    if (thread < columns && k + thread < extents.kept) put_block(program, extents, partials, k + thread, b, results);
    if (extents.blocks > 1 && is_last_block(counters + tile, extents.blocks)) combine_partials<columns>(program, combine, extents, partials, k, shared);
  }
}

}  // namespace replicator::detail::cuda
