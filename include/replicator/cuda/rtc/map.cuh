// SPDX-License-Identifier: Apache-2.0
// The bodies of elementwise kernels. The program evaluates the expression. It is the interpreter's ScalarProgram, or a Program
// that was generated (cuda/expressions/expression_source.hpp).
#pragma once

#include <replicator/cuda/rtc/threads.cuh>

namespace replicator::detail::cuda {

// Computes the groups first, first + stride, ... before `end`, which is at least 1. A group is Program::lanes neighbouring elements.
// Program::at_once groups are read before the first of them is written, so that as many loads are in flight. The reads are not
// guarded, so that they need no branches. Beyond the end the last group is read again, and not written.
template <class T, class Program>
__device__ void map_range(const Program& program, typename Program::Index first, typename Program::Index stride, typename Program::Index end) {
  using Index = typename Program::Index;
  constexpr int at_once = Program::at_once;
  T values[at_once][Program::slots * Program::lanes];
  for (const Index last = end - 1; first <= last; first += at_once * stride) {
    for (int u = 0; u < at_once; ++u) {
      const Index i = first + u * stride;
      program.evaluate(i < last ? i : last, values[u]);
    }
    for (int u = 0; u < at_once; ++u)
      if (const Index i = first + u * stride; i <= last) program.store_all(i, values[u]);
  }
}

template <class T, class Program>
__device__ void map_elements(const Program& program) {
  using Index = typename Program::Index;
  map_range<T>(program, first_element<Index>(), element_stride<Index>(), static_cast<Index>(program.elements) / Program::lanes);
}

// In a launch of several programs, each block of threads takes one tile of one of them.
struct MapTile {
  static constexpr int elements = 4096;
  unsigned program, number;
};

template <class T, class Program>
__device__ void map_tile(const Program& program, unsigned number) {
  using Index = typename Program::Index;
  constexpr Index groups = MapTile::elements / Program::lanes;
  const Index begin = number * groups, end = begin + groups, all = static_cast<Index>(program.elements) / Program::lanes;
  map_range<T>(program, static_cast<Index>(begin + threadIdx.x), static_cast<Index>(block_threads), end < all ? end : all);
}

}  // namespace replicator::detail::cuda
