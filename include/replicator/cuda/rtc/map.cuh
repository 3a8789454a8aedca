// SPDX-License-Identifier: Apache-2.0
// The body of elementwise kernels, whoever evaluates the expression: the interpreter's ScalarProgram, or a Program that was
// generated (cuda/expression_source.hpp).
#pragma once

#include <replicator/cuda/rtc/threads.cuh>

namespace replicator::cuda {

// Program::at_once elements are read before the first of them is written, so that as many loads are under way. Their reads are not
// guarded, so that they need no branches: behind the end the last element is read again, and not written.
template <class T, class Program>
__device__ void map_elements(const Program& program) {
  constexpr int at_once = Program::at_once;
  T values[at_once][Program::slots];
  const long long stride = element_stride(), last = program.elements - 1;
  for (long long first = first_element(); first <= last; first += at_once * stride) {
    for (int u = 0; u < at_once; ++u) {
      const long long i = first + u * stride;
      program.evaluate(i < last ? i : last, values[u]);
    }
    for (int u = 0; u < at_once; ++u)
      if (const long long i = first + u * stride; i <= last) program.store_all(i, values[u]);
  }
}

}  // namespace replicator::cuda
