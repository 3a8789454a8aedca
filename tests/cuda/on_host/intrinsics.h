// SPDX-License-Identifier: Apache-2.0
// Stand-ins on the host for what CUDA's compilers know by themselves. Include this after the definitions of threadIdx and
// __syncthreads. It includes nothing itself, because each kernel that is compiled while a test runs includes it.
#pragma once

#define __global__
#define __host__
#define __device__
#define __grid_constant__
#define __launch_bounds__(threads)
#define __shared__ static

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
inline double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }
inline long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }

// The threads of the host run one after the other.
inline void __threadfence() {}
inline unsigned atomicInc(unsigned* at, unsigned highest) {
  const unsigned old = *at;
  *at = old >= highest ? 0 : old + 1;
  return old;
}

// For whole warps, in blocks of one size. Two buffers take turns: the next call may write while other threads still read values of this one.
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned distance) {
  static T both[2][1024];
  static bool turn[1024];
  T* values = both[turn[threadIdx.x] ^= true];
  values[threadIdx.x] = value;
  __syncthreads();
  return threadIdx.x % 32 + distance < 32 ? values[threadIdx.x + distance] : value;
}
