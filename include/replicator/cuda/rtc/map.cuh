// SPDX-License-Identifier: Apache-2.0
// The bodies of elementwise kernels. The program evaluates the expression. It is the interpreter's ScalarProgram, or a Program
// that was generated (cuda/expressions/expression_source.hpp).
#pragma once

#include <replicator/cuda/rtc/threads.cuh>

namespace replicator::detail::cuda {

// Computes the elements first, first + stride, ... before `end`, which is at least 1. Program::at_once elements are read before
// the first of them is written, so that as many loads are in flight. The reads are not guarded, so that they need no branches.
// Beyond the end the last element is read again, and not written.
template <class T, class Program>
__device__ void map_range(const Program& program, long long first, long long stride, long long end) {
  constexpr int at_once = Program::at_once;
  T values[at_once][Program::slots];
  for (const long long last = end - 1; first <= last; first += at_once * stride) {
    for (int u = 0; u < at_once; ++u) {
      const long long i = first + u * stride;
      program.evaluate(i < last ? i : last, values[u]);
    }
    for (int u = 0; u < at_once; ++u)
      if (const long long i = first + u * stride; i <= last) program.store_all(i, values[u]);
  }
}

template <class T, class Program>
__device__ void map_elements(const Program& program) {
  map_range<T>(program, first_element(), element_stride(), program.elements);
}

// In a launch of several programs, each block of threads takes one tile of one of them.
struct MapTile {
  static constexpr int elements = 4096;
  unsigned program, number;
};

template <class T, class Program>
__device__ void map_tile(const Program& program, unsigned number) {
  const long long begin = static_cast<long long>(number) * MapTile::elements, end = begin + MapTile::elements;
  map_range<T>(program, begin + threadIdx.x, block_threads, end < program.elements ? end : program.elements);
}

}  // namespace replicator::detail::cuda
