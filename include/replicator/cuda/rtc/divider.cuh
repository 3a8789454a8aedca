// SPDX-License-Identifier: Apache-2.0
// Division by an extent that is known at launch but is not in the kernel's source.
#pragma once

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace replicator::detail::cuda {

// A divisor with its constants. cuda/expressions/operands.hpp makes these words.
struct Divider {
  unsigned multiplier, shift;
  long long divisor;
};

// For n < 2^31. Source: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
__device__ inline unsigned quotient_of(unsigned n, const Divider& by) {
  return static_cast<unsigned>(static_cast<unsigned long long>(n) * by.multiplier >> by.shift);
}
__device__ inline long long quotient_of(long long n, const Divider& by) { return n / by.divisor; }

}  // namespace replicator::detail::cuda
