// SPDX-License-Identifier: Apache-2.0
// The device's arithmetic and storage functions (rtc/), chosen by operations and element types that are known only at run time.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <replicator/core/dtype.hpp>
#include <replicator/cuda/rtc/arithmetic.cuh>
#include <replicator/cuda/rtc/storage.cuh>
#include <replicator/graph/expression.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::detail::cuda {

template <class T>
__device__ T apply(ScalarOp op, T a, T b, T c) {
  switch (op) {
    case ScalarOp::negate: return negate(a);
    case ScalarOp::absolute: return absolute(a);
    case ScalarOp::sign: return sign(a);
    case ScalarOp::square_root: return square_root(a);
    case ScalarOp::exponential: return exponential(a);
    case ScalarOp::logarithm: return logarithm(a);
    case ScalarOp::hyperbolic_tangent: return hyperbolic_tangent(a);
    case ScalarOp::error_function: return error_function(a);
    case ScalarOp::sine: return sine(a);
    case ScalarOp::cosine: return cosine(a);
    case ScalarOp::floor: return rounded_down(a);
    case ScalarOp::rectify: return rectify(a);
    case ScalarOp::logical_not: return logical_not(a);
    case ScalarOp::add: return plus(a, b);
    case ScalarOp::subtract: return minus(a, b);
    case ScalarOp::multiply: return times(a, b);
    case ScalarOp::divide: return quotient(a, b);
    case ScalarOp::minimum: return minimum(a, b);
    case ScalarOp::maximum: return maximum(a, b);
    case ScalarOp::power: return power(a, b);
    case ScalarOp::less: return less(a, b);
    case ScalarOp::less_equal: return less_equal(a, b);
    case ScalarOp::equal: return equal(a, b);
    case ScalarOp::logical_and: return logical_and(a, b);
    case ScalarOp::logical_or: return logical_or(a, b);
    case ScalarOp::bit_and: return bit_and(a, b);
    case ScalarOp::bit_or: return bit_or(a, b);
    case ScalarOp::bit_exclusive_or: return bit_exclusive_or(a, b);
    case ScalarOp::shift_left: return shift_left(a, b);
    case ScalarOp::shift_right: return shift_right(a, b);
    case ScalarOp::select: return select(a, b, c);
    case ScalarOp::multiply_add: return fused_multiply_add(a, b, c);
    default: return a;  // inputs and constants are not arithmetic
  }
}

// The identity of a reduction. For a floating sum it is minus zero, which leaves every number as it is.
template <class T>
T identity_of(ReduceKind kind) {
  using Limits = std::numeric_limits<T>;
  if (kind == ReduceKind::sum) return std::is_floating_point_v<T> ? -T(0) : T(0);
  if (kind == ReduceKind::min) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

// Combines two values of a reduction within a replica.
template <class T>
struct Combine {
  ReduceKind kind;
  T identity = identity_of<T>(kind);

  __device__ T operator()(T a, T b) const {
    if (kind == ReduceKind::sum) return plus(a, b);
    return kind == ReduceKind::min ? smaller(a, b) : larger(a, b);
  }
};

template <class Stored>
struct ComputeOf {
  using type = Stored;
};
template <>
struct ComputeOf<Bfloat16Word> {
  using type = float;
};
// The type in which kernels of this element type compute.
template <class Stored>
using compute_of = typename ComputeOf<Stored>::type;
template <class Stored>
__device__ Stored stored(compute_of<Stored> x) {
  if constexpr (std::is_same_v<Stored, Bfloat16Word>) return {to_bfloat16(x)};
  else return x;
}

// Element `offset` of memory of this dtype.
template <class T>
__device__ T load(DType dtype, const std::byte* data, std::int64_t offset) {
  switch (dtype) {
    case DType::float32: return load<T>(reinterpret_cast<const float*>(data), offset);
    case DType::float64: return load<T>(reinterpret_cast<const double*>(data), offset);
    case DType::int32: return load<T>(reinterpret_cast<const std::int32_t*>(data), offset);
    case DType::int64: return load<T>(reinterpret_cast<const std::int64_t*>(data), offset);
    case DType::bfloat16: return load<T>(reinterpret_cast<const Bfloat16Word*>(data), offset);
    case DType::boolean: return load<T>(reinterpret_cast<const BoolByte*>(data), offset);
    default: return load<T>(reinterpret_cast<const std::uint8_t*>(data), offset);
  }
}
template <class T>
__device__ void store(DType dtype, std::byte* data, std::int64_t offset, T value) {
  switch (dtype) {
    case DType::float32: store(reinterpret_cast<float*>(data), offset, value); break;
    case DType::float64: store(reinterpret_cast<double*>(data), offset, value); break;
    case DType::int32: store(reinterpret_cast<std::int32_t*>(data), offset, value); break;
    case DType::int64: store(reinterpret_cast<std::int64_t*>(data), offset, value); break;
    case DType::uint8: store(reinterpret_cast<std::uint8_t*>(data), offset, value); break;
    case DType::boolean: store(reinterpret_cast<BoolByte*>(data), offset, value); break;
    case DType::bfloat16: store(reinterpret_cast<Bfloat16Word*>(data), offset, value); break;
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

}  // namespace replicator::detail::cuda
