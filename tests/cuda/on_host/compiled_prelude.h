// SPDX-License-Identifier: Apache-2.0
// Comes before a source that nvrtc.h compiles for the host. It declares what NVRTC declares by itself, and gives access to the
// threads of the test program.
#pragma once

#define __CUDACC_RTC__

extern "C" {
float expf(float), logf(float), tanhf(float), erff(float), sinf(float), cosf(float), floorf(float), fabsf(float), powf(float, float);
double exp(double), log(double), tanh(double), erf(double), sin(double), cos(double), floor(double), fabs(double), pow(double, double);
}

struct dim3 {
  unsigned x, y, z;
};
extern "C" {  // set by library.hpp
const dim3 *on_host_block_index, *on_host_thread_index, *on_host_block_extent, *on_host_grid_extent;
void (*on_host_synchronise)();
}
#define blockIdx (*on_host_block_index)
#define threadIdx (*on_host_thread_index)
#define blockDim (*on_host_block_extent)
#define gridDim (*on_host_grid_extent)
inline void __syncthreads() { on_host_synchronise(); }

#include "intrinsics.h"

// A kernel with a copy of its arguments. A launch points to the arguments.
struct OnHostLaunch {
  virtual ~OnHostLaunch() = default;
  virtual void run() const = 0;
};
template <class Kernel>
struct OnHostBound final : OnHostLaunch {
  explicit OnHostBound(Kernel bound) : kernel{bound} {}
  void run() const override { kernel(); }
  Kernel kernel;
};
template <class First, class... Left>
OnHostLaunch* on_host_bind(auto kernel, void** arguments) {
  const auto bound = [kernel, first = *static_cast<First*>(*arguments)](auto... left) { kernel(first, left...); };
  if constexpr (sizeof...(Left) == 0) return new OnHostBound{bound};
  else return on_host_bind<Left...>(bound, arguments + 1);
}
template <class... A>
OnHostLaunch* on_host_launch(void (*kernel)(A...), void** arguments) {
  return on_host_bind<A...>(kernel, arguments);
}
