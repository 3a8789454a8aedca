// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic on the device with the CPU's meaning (cpu/tiles.hpp): one rounding per operation whatever the
// compiler's flags, integers that wrap around, a NaN that wins a minimum or maximum of a reduction.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cuda/std/limits>
#include <type_traits>

#include <replicator/core/dtype.hpp>
#include <replicator/graph/expression.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::cuda {

template <class T>
__device__ T plus(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return __fadd_rn(a, b);
  else if constexpr (std::is_same_v<T, double>) return __dadd_rn(a, b);
  else return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
}
template <class T>
__device__ T minus(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return __fsub_rn(a, b);
  else if constexpr (std::is_same_v<T, double>) return __dsub_rn(a, b);
  else return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) - static_cast<std::make_unsigned_t<T>>(b));
}
template <class T>
__device__ T times(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return __fmul_rn(a, b);
  else if constexpr (std::is_same_v<T, double>) return __dmul_rn(a, b);
  else return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) * static_cast<std::make_unsigned_t<T>>(b));
}
// Integers truncate; by zero they give 0, the lowest by -1 wraps.
template <class T>
__device__ T quotient(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return __fdiv_rn(a, b);
  else if constexpr (std::is_same_v<T, double>) return __ddiv_rn(a, b);
  else return b == 0 ? T(0) : b == -1 ? minus(T(0), a) : static_cast<T>(a / b);
}
// a * b + c with one rounding; integers have no rounding.
template <class T>
__device__ T fused_multiply_add(T a, T b, T c) {
  if constexpr (std::is_same_v<T, float>) return __fmaf_rn(a, b, c);
  else if constexpr (std::is_same_v<T, double>) return __fma_rn(a, b, c);
  else return plus(times(a, b), c);
}
// Negative exponents of integers give 0 but for the bases 1 and -1.
template <class T>
__device__ T power(T base, T exponent) {
  if constexpr (std::is_floating_point_v<T>) {
    return ::pow(base, exponent);
  } else {
    if (exponent < 0) return base == 1 ? T(1) : base == -1 ? (exponent & 1 ? T(-1) : T(1)) : T(0);
    T result = 1;
    for (T e = exponent; e > 0; e >>= 1, base = times(base, base))
      if (e & 1) result = times(result, base);
    return result;
  }
}

// Operations that only floating types have (:: because replicator has functions of these names); the host has refused them for integers.
template <class T>
__device__ T apply_floating(ScalarOp op, T a) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case ScalarOp::square_root:
        if constexpr (std::is_same_v<T, float>) return __fsqrt_rn(a);
        else return __dsqrt_rn(a);
      case ScalarOp::exponential: return ::exp(a);
      case ScalarOp::logarithm: return ::log(a);
      case ScalarOp::hyperbolic_tangent: return ::tanh(a);
      case ScalarOp::sine: return ::sin(a);
      case ScalarOp::cosine: return ::cos(a);
      case ScalarOp::floor: return ::floor(a);
      default: break;
    }
  }
  return a;  // floor of an integer
}

template <class T>
__device__ T apply(ScalarOp op, T a, T b, T c) {
  switch (op) {
    case ScalarOp::negate:
      if constexpr (std::is_floating_point_v<T>) return -a;
      else return minus(T(0), a);
    case ScalarOp::absolute:
      if constexpr (std::is_floating_point_v<T>) return ::fabs(a);
      else return a < 0 ? minus(T(0), a) : a;
    case ScalarOp::sign: return static_cast<T>(static_cast<int>(a > 0) - static_cast<int>(a < 0));
    case ScalarOp::rectify: return a <= 0 ? T(0) : a;
    case ScalarOp::logical_not: return a == 0 ? T(1) : T(0);
    case ScalarOp::add: return plus(a, b);
    case ScalarOp::subtract: return minus(a, b);
    case ScalarOp::multiply: return times(a, b);
    case ScalarOp::divide: return quotient(a, b);
    case ScalarOp::minimum: return b < a ? b : a;
    case ScalarOp::maximum: return a < b ? b : a;
    case ScalarOp::power: return power(a, b);
    case ScalarOp::less: return a < b ? T(1) : T(0);
    case ScalarOp::less_equal: return a <= b ? T(1) : T(0);
    case ScalarOp::equal: return a == b ? T(1) : T(0);
    case ScalarOp::logical_and: return a != 0 && b != 0 ? T(1) : T(0);
    case ScalarOp::logical_or: return a != 0 || b != 0 ? T(1) : T(0);
    case ScalarOp::select: return a != 0 ? b : c;
    case ScalarOp::multiply_add: return fused_multiply_add(a, b, c);
    default: return apply_floating(op, a);
  }
}

// What leaves every number as it is: of a sum minus zero.
template <class T>
T identity_of(ReduceKind kind) {
  using Limits = ::cuda::std::numeric_limits<T>;
  if (kind == ReduceKind::sum) return std::is_floating_point_v<T> ? -T(0) : T(0);
  if (kind == ReduceKind::min) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

// The node of a reduction within a replica.
template <class T>
struct Combine {
  ReduceKind kind;
  T identity = identity_of<T>(kind);

  __device__ T operator()(T a, T b) const {
    if (kind == ReduceKind::sum) return plus(a, b);
    if (kind == ReduceKind::min) return b < a || b != b ? b : a;
    return a < b || b != b ? b : a;
  }
};

// As bfloat16_value and bfloat16_bits, which device code cannot call.
__device__ inline float from_bfloat16(std::uint16_t bits) { return __uint_as_float(static_cast<std::uint32_t>(bits) << 16); }
__device__ inline std::uint16_t to_bfloat16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return static_cast<std::uint16_t>((value != value ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// bfloat16 in memory; arithmetic on it is float's. The other types are stored as they are computed.
struct Bfloat16Word {
  std::uint16_t bits;
};
template <class Stored>
struct ComputeOf {
  using type = Stored;
};
template <>
struct ComputeOf<Bfloat16Word> {
  using type = float;
};
template <class Stored>
using compute_of = typename ComputeOf<Stored>::type;
template <class T>
__device__ T value_of(T x) {
  return x;
}
__device__ inline float value_of(Bfloat16Word x) { return from_bfloat16(x.bits); }
template <class Stored>
__device__ Stored stored(compute_of<Stored> x) {
  if constexpr (std::is_same_v<Stored, Bfloat16Word>) return {to_bfloat16(x)};
  else return x;
}

// Element `offset` of memory of this dtype. A bool in memory is a byte.
template <class T>
__device__ T load(DType dtype, const std::byte* data, std::int64_t offset) {
  switch (dtype) {
    case DType::float32: return static_cast<T>(reinterpret_cast<const float*>(data)[offset]);
    case DType::float64: return static_cast<T>(reinterpret_cast<const double*>(data)[offset]);
    case DType::int32: return static_cast<T>(reinterpret_cast<const std::int32_t*>(data)[offset]);
    case DType::int64: return static_cast<T>(reinterpret_cast<const std::int64_t*>(data)[offset]);
    case DType::bfloat16: return static_cast<T>(from_bfloat16(reinterpret_cast<const std::uint16_t*>(data)[offset]));
    default: return static_cast<T>(reinterpret_cast<const std::uint8_t*>(data)[offset]);
  }
}
// As cpu::detail::truncated, which device code cannot call.
template <class To, class T>
__device__ To to_integer(T x) {
  using Limits = ::cuda::std::numeric_limits<To>;
  if constexpr (std::is_integral_v<T>) return static_cast<To>(x);
  else {
    constexpr To lowest = Limits::min(), highest = Limits::max();
    constexpr T beyond = static_cast<T>(highest / 2 + 1) * 2;
    return x >= beyond ? highest : x <= static_cast<T>(lowest) ? lowest : x != x ? To{0} : static_cast<To>(x);
  }
}

// Floating to integer truncates and saturates; to bool: not zero; a wider integer wraps around.
template <class T>
__device__ void store(DType dtype, std::byte* data, std::int64_t offset, T value) {
  switch (dtype) {
    case DType::float32: reinterpret_cast<float*>(data)[offset] = static_cast<float>(value); break;
    case DType::float64: reinterpret_cast<double*>(data)[offset] = static_cast<double>(value); break;
    case DType::int32: reinterpret_cast<std::int32_t*>(data)[offset] = to_integer<std::int32_t>(value); break;
    case DType::int64: reinterpret_cast<std::int64_t*>(data)[offset] = to_integer<std::int64_t>(value); break;
    case DType::uint8: reinterpret_cast<std::uint8_t*>(data)[offset] = to_integer<std::uint8_t>(value); break;
    case DType::boolean: reinterpret_cast<std::uint8_t*>(data)[offset] = value != 0 ? 1 : 0; break;
    case DType::bfloat16: reinterpret_cast<std::uint16_t*>(data)[offset] = to_bfloat16(static_cast<float>(value)); break;
  }
}

// Calls f.template operator()<T>() with the type in which expressions of `compute` are computed.
template <class F>
void visit_compute(DType compute, F&& f) {
  switch (compute) {
    case DType::float32: return f.template operator()<float>();
    case DType::float64: return f.template operator()<double>();
    case DType::int32: return f.template operator()<std::int32_t>();
    default: return f.template operator()<std::int64_t>();
  }
}

}  // namespace replicator::cuda
