// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic on GPUs with the CPU's meaning (cpu/loops/tile_loops.hpp). Each operation rounds once, whatever the
// compiler's flags. Integers wrap around. A NaN wins the minimum or maximum of a reduction.
#pragma once

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace replicator::detail::cuda {

template <class T>
inline constexpr bool is_float = false;
template <>
inline constexpr bool is_float<float> = true;
template <class T>
inline constexpr bool is_double = false;
template <>
inline constexpr bool is_double<double> = true;
template <class T>
inline constexpr bool is_real = is_float<T> || is_double<T>;

template <int bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = unsigned char;
};
template <>
struct UnsignedOf<4> {
  using type = unsigned;
};
template <>
struct UnsignedOf<8> {
  using type = unsigned long long;
};
// The unsigned type of an integer's size.
template <class T>
using Unsigned = typename UnsignedOf<sizeof(T)>::type;

template <class T>
__device__ T plus(T a, T b) {
  if constexpr (is_float<T>) return __fadd_rn(a, b);
  else if constexpr (is_double<T>) return __dadd_rn(a, b);
  else return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T>
__device__ T minus(T a, T b) {
  if constexpr (is_float<T>) return __fsub_rn(a, b);
  else if constexpr (is_double<T>) return __dsub_rn(a, b);
  else return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <class T>
__device__ T times(T a, T b) {
  if constexpr (is_float<T>) return __fmul_rn(a, b);
  else if constexpr (is_double<T>) return __dmul_rn(a, b);
  else return static_cast<T>(static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
}
// Integers truncate. Division by zero gives 0. The lowest integer divided by -1 wraps around.
template <class T>
__device__ T quotient(T a, T b) {
  if constexpr (is_float<T>) return __fdiv_rn(a, b);
  else if constexpr (is_double<T>) return __ddiv_rn(a, b);
  else return b == 0    ? T(0)
              : b == -1 ? minus(T(0), a)
                        : static_cast<T>(a / b);
}
// a * b + c with one rounding; integers have no rounding.
template <class T>
__device__ T fused_multiply_add(T a, T b, T c) {
  if constexpr (is_float<T>) return __fmaf_rn(a, b, c);
  else if constexpr (is_double<T>) return __fma_rn(a, b, c);
  else return plus(times(a, b), c);
}
// Negative exponents of integers give 0, except for the bases 1 and -1.
template <class T>
__device__ T power(T base, T exponent) {
  if constexpr (is_float<T>) {
    return ::powf(base, exponent);
  } else if constexpr (is_double<T>) {
    return ::pow(base, exponent);
  } else {
    if (exponent < 0) return base == 1 ? T(1) : base == -1 ? (exponent & 1 ? T(-1) : T(1))
                                                           : T(0);
    T result = 1;
    for (T e = exponent; e > 0; e >>= 1, base = times(base, base))
      if (e & 1) result = times(result, base);
    return result;
  }
}

// Only floating types have these functions. The host refuses integers before.
template <class T>
__device__ T square_root(T a) {
  if constexpr (is_float<T>) return __fsqrt_rn(a);
  else if constexpr (is_double<T>) return __dsqrt_rn(a);
  else return a;
}
template <class T>
__device__ T exponential(T a) {
  if constexpr (is_float<T>) return ::expf(a);
  else if constexpr (is_double<T>) return ::exp(a);
  else return a;
}
template <class T>
__device__ T logarithm(T a) {
  if constexpr (is_float<T>) return ::logf(a);
  else if constexpr (is_double<T>) return ::log(a);
  else return a;
}
template <class T>
__device__ T hyperbolic_tangent(T a) {
  if constexpr (is_float<T>) return ::tanhf(a);
  else if constexpr (is_double<T>) return ::tanh(a);
  else return a;
}
template <class T>
__device__ T error_function(T a) {
  if constexpr (is_float<T>) return ::erff(a);
  else if constexpr (is_double<T>) return ::erf(a);
  else return a;
}
template <class T>
__device__ T sine(T a) {
  if constexpr (is_float<T>) return ::sinf(a);
  else if constexpr (is_double<T>) return ::sin(a);
  else return a;
}
template <class T>
__device__ T cosine(T a) {
  if constexpr (is_float<T>) return ::cosf(a);
  else if constexpr (is_double<T>) return ::cos(a);
  else return a;
}

template <class T>
__device__ T rounded_down(T a) {
  if constexpr (is_float<T>) return ::floorf(a);
  else if constexpr (is_double<T>) return ::floor(a);
  else return a;
}
template <class T>
__device__ T negate(T a) {
  if constexpr (is_real<T>) return -a;
  else return minus(T(0), a);
}
template <class T>
__device__ T absolute(T a) {
  if constexpr (is_float<T>) return ::fabsf(a);
  else if constexpr (is_double<T>) return ::fabs(a);
  else return a < 0 ? minus(T(0), a) : a;
}
template <class T>
__device__ T sign(T a) {
  return static_cast<T>(static_cast<int>(a > 0) - static_cast<int>(a < 0));
}
template <class T>
__device__ T rectify(T a) {
  return a <= 0 ? T(0) : a;
}
template <class T>
__device__ T minimum(T a, T b) {
  return b < a ? b : a;
}
template <class T>
__device__ T maximum(T a, T b) {
  return a < b ? b : a;
}

// Comparisons and logic give 1 or 0. Any number but zero is true.
template <class T>
__device__ T less(T a, T b) {
  return a < b ? T(1) : T(0);
}
template <class T>
__device__ T less_equal(T a, T b) {
  return a <= b ? T(1) : T(0);
}
template <class T>
__device__ T equal(T a, T b) {
  return a == b ? T(1) : T(0);
}
template <class T>
__device__ T logical_not(T a) {
  return a == 0 ? T(1) : T(0);
}
template <class T>
__device__ T logical_and(T a, T b) {
  return a != 0 && b != 0 ? T(1) : T(0);
}
template <class T>
__device__ T logical_or(T a, T b) {
  return a != 0 || b != 0 ? T(1) : T(0);
}
// Only integers have these functions. The host refuses floating types before. A shift by a negative number, or by all bits and
// more, leaves none of them.
template <class T>
__device__ T bit_and(T a, T b) {
  if constexpr (is_real<T>) return a;
  else return a & b;
}
template <class T>
__device__ T bit_or(T a, T b) {
  if constexpr (is_real<T>) return a;
  else return a | b;
}
template <class T>
__device__ T bit_exclusive_or(T a, T b) {
  if constexpr (is_real<T>) return a;
  else return a ^ b;
}
template <class T>
__device__ T shift_left(T a, T b) {
  if constexpr (is_real<T>) {
    return a;
  } else {
    constexpr T last = 8 * sizeof(T) - 1;
    return (b & last) == b ? static_cast<T>(static_cast<Unsigned<T>>(a) << (b & last)) : T(0);
  }
}
template <class T>
__device__ T shift_right(T a, T b) {
  if constexpr (is_real<T>) {
    return a;
  } else {
    constexpr T last = 8 * sizeof(T) - 1;
    return static_cast<T>(a >> ((b & last) == b ? b : last));
  }
}
template <class T>
__device__ T select(T condition, T yes, T no) {
  return condition != 0 ? yes : no;
}

// How a reduction within a replica combines two values, beside plus.
template <class T>
__device__ T smaller(T a, T b) {
  return b < a || b != b ? b : a;
}
template <class T>
__device__ T larger(T a, T b) {
  return a < b || b != b ? b : a;
}

}  // namespace replicator::detail::cuda
