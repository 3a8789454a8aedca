// SPDX-License-Identifier: Apache-2.0
// The second half of a reduction. Blocks of threads leave partial results in scratch memory. The last block of threads to finish
// combines them, so a reduction is one launch.
//
// The order is that of a binary counter: neighbours first, then neighbouring pairs, and so on. What has no neighbour goes up as it is.
#pragma once

#include <replicator/cuda/rtc/reduce_extents.hpp>
#include <replicator/cuda/rtc/threads.cuh>

namespace replicator::detail::cuda {

// Whether this block of threads is the last of `blocks` that call this with the same counter. All its threads must call it, and
// all get the same answer. The last one sees all that the others wrote before. The counter is 0 before and afterwards, so a
// captured launch can be replayed.
__device__ inline bool is_last_block(unsigned* counter, long long blocks) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto others = static_cast<unsigned>(blocks - 1);
    __threadfence();  // for what all threads of this block wrote, because they have synchronised
    is_last = atomicInc(counter, others) == others;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

// One thread combines at least one value: first[0], first[stride], ...
template <class T, class Combine>
__device__ T combine_in_order(const T* first, long long stride, long long count, Combine combine) {
  constexpr int at_once = 16;  // loads in flight
  T nodes[48];                 // waiting for their right neighbours
  int waiting = 0;
  for (long long begin = 0; begin < count; begin += at_once) {
    const T* const at = first + begin * stride;
    const int taken = count - begin < at_once ? static_cast<int>(count - begin) : at_once;
    T values[at_once];
    for (int i = 0; i < at_once; ++i) values[i] = i < taken ? at[i * stride] : combine.identity;
    for (int distance = 1; distance < at_once; distance *= 2)
      for (int i = 0; i < at_once; i += 2 * distance)
        if (i + distance < taken) values[i] = combine(values[i], values[i + distance]);
    for (long long turn = begin / at_once; turn & 1; turn >>= 1) values[0] = combine(nodes[--waiting], values[0]);
    nodes[waiting++] = values[0];
  }
  T result = nodes[--waiting];
  while (waiting > 0) result = combine(nodes[--waiting], result);
  return result;
}

// A block of threads combines and stores `columns` neighbouring output elements. partials[(o * blocks + b) * kept + k] is the
// result of block b for element k of output o. `shared` has an element for each thread.
template <int columns, class T, class Program, class Combine>
__device__ void combine_partials(const Program& program, Combine combine, ReduceExtents extents, const T* partials, long long first, T* shared) {
  const int lanes = static_cast<int>(blockDim.x) / columns, lane = static_cast<int>(threadIdx.x) / columns;
  const long long k = first + static_cast<int>(threadIdx.x) % columns;
  long long part = 1;  // how many partial results a lane takes: a power of two, so that the order does not depend on it
  while (part * lanes < extents.blocks) part *= 2;
  const long long begin = lane * part, left = extents.blocks - begin;
  const bool takes_part = k < extents.kept && left > 0;
  T results[Program::most_outputs];
  for (int o = 0; o < program.output_count; ++o) {
    if (takes_part)
      shared[threadIdx.x] = combine_in_order(partials + (o * extents.blocks + begin) * extents.kept + k, extents.kept, left < part ? left : part, combine);
    for (int distance = 1; distance * part < extents.blocks; distance *= 2) {
      __syncthreads();
      if (takes_part && lane % (2 * distance) == 0 && distance * part < left)
        shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + distance * columns]);
    }
    if (takes_part && lane == 0) results[o] = shared[threadIdx.x];
    __syncthreads();  // the memory is used again
  }
  if (takes_part && lane == 0) program.finish(k, results);
}

}  // namespace replicator::detail::cuda
