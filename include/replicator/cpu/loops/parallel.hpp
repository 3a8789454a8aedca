// SPDX-License-Identifier: Apache-2.0
// Runs loops in OpenMP threads over fixed ranges.
#pragma once

#include <omp.h>

#include <cstdint>

namespace replicator::detail::cpu {

// Calls body(part, begin, end) for `threads` contiguous parts of [0, n), one per thread. The borders depend on n and `threads`
// only. One thread does not enter OpenMP. `body` must not throw.
template <class Body>
void parallel_for(int threads, std::int64_t n, const Body& body) {
  if (threads <= 1 || n <= 1) {
    if (n > 0) body(0, std::int64_t{0}, n);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int part = 0; part < threads; ++part) {
    const std::int64_t begin = n * part / threads;
    const std::int64_t end = n * (part + 1) / threads;
    if (begin < end) body(part, begin, end);
  }
}

}  // namespace replicator::detail::cpu
