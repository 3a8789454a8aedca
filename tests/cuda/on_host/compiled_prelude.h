// SPDX-License-Identifier: Apache-2.0
// In front of a source that nvrtc.h compiles for the host: what NVRTC declares by itself, and the way to the threads of the test program.
#pragma once

#define __CUDACC_RTC__

extern "C" {
float expf(float), logf(float), tanhf(float), sinf(float), cosf(float), floorf(float), fabsf(float), powf(float, float);
double exp(double), log(double), tanh(double), sin(double), cos(double), floor(double), fabs(double), pow(double, double);
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

// The kernel with arguments as launches have them.
template <class... A>
void on_host_call(void (*kernel)(A...), void** arguments) {
  struct Call {
    Call(void (*kernel)(A...), A... all) { kernel(all...); }
  };
  Call{kernel, *static_cast<A*>(*arguments++)...};  // in braces: in order
}
