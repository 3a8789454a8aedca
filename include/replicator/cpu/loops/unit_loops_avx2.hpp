// SPDX-License-Identifier: Apache-2.0
// The loops of unit_loops.hpp on AVX2, for rows stored as float32. A group of 16 lanes is two vectors. The order of combination is the
// same, so the bits are too.
#pragma once

#include <cstddef>
#include <cstdint>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/unit_loops.hpp>

#if defined(__x86_64__)

namespace replicator::detail::cpu::detail::avx2 {

using EightFloats [[gnu::vector_size(32)]] = float;

// lane += x. If both are NaN, the lane's NaN stays, however the loop is compiled. This takes assembly, because a C++ compiler may
// exchange the operands, even those of an intrinsic.
// clang-format off
[[REPLICATOR_AVX2, gnu::always_inline]] inline void add_to(EightFloats& lanes, const EightFloats& x) { asm("vaddps %1, %0, %0" : "+x"(lanes) : "x"(x)); }
[[REPLICATOR_AVX2, gnu::always_inline]] inline void add_to(float& lane, float x) { asm("vaddss %1, %0, %0" : "+x"(lane) : "x"(x)); }
// clang-format on

// lane (+) x.
template <ReduceKind kind>
[[REPLICATOR_AVX2, gnu::always_inline]] inline void combine_lanes(EightFloats& lanes, EightFloats x) {
  if constexpr (kind == ReduceKind::sum) {
    add_to(lanes, x);
  } else {
    // max and min return their second operand, the lane, if an operand is NaN or both are equal. Then a NaN of x is put in.
    const auto a = reinterpret_cast<__m256>(lanes), b = reinterpret_cast<__m256>(x);
    const __m256 chosen = kind == ReduceKind::max ? _mm256_max_ps(b, a) : _mm256_min_ps(b, a);
    lanes = reinterpret_cast<EightFloats>(_mm256_blendv_ps(chosen, b, _mm256_cmp_ps(b, b, _CMP_UNORD_Q)));
  }
}

[[REPLICATOR_AVX2, gnu::always_inline]] inline EightFloats lanes_of(float x) { return reinterpret_cast<EightFloats>(_mm256_set1_ps(x)); }

// Eight elements of a row, from this one on.
[[REPLICATOR_AVX2, gnu::always_inline]] inline EightFloats load_eight(const StoredRow<float>& row, std::int64_t at) {
  return reinterpret_cast<EightFloats>(_mm256_loadu_ps(reinterpret_cast<const float*>(row.x) + at));
}
[[REPLICATOR_AVX2, gnu::always_inline]] inline EightFloats load_eight(const ProductRow& row, std::int64_t at) {
  return reinterpret_cast<EightFloats>(_mm256_mul_ps(_mm256_loadu_ps(row.a + at), _mm256_loadu_ps(row.b + at)));
}
// The first `count` of them, below 8. What the other lanes hold does not count. Reads nothing behind them.
[[REPLICATOR_AVX2, gnu::always_inline]] inline EightFloats load_last(const StoredRow<float>& row, std::int64_t at, std::int64_t count) {
  return reinterpret_cast<EightFloats>(_mm256_maskload_ps(reinterpret_cast<const float*>(row.x) + at, first_lanes(count)));
}
[[REPLICATOR_AVX2, gnu::always_inline]] inline EightFloats load_last(const ProductRow& row, std::int64_t at, std::int64_t count) {
  return reinterpret_cast<EightFloats>(_mm256_mul_ps(_mm256_maskload_ps(row.a + at, first_lanes(count)), _mm256_maskload_ps(row.b + at, first_lanes(count))));
}

// Combines the last elements of a row, `left` of them or as many as there are lanes.
template <ReduceKind kind, class Row>
[[REPLICATOR_AVX2, gnu::always_inline]] inline void combine_rest(EightFloats& lanes, const Row& row, std::int64_t at, std::int64_t left) {
  if (left <= 0) return;
  if (left >= 8) return combine_lanes<kind>(lanes, load_eight(row, at));
  EightFloats combined = lanes;
  combine_lanes<kind>(combined, load_last(row, at, left));
  const __m256 mask = _mm256_castsi256_ps(first_lanes(left));
  lanes = reinterpret_cast<EightFloats>(_mm256_blendv_ps(reinterpret_cast<__m256>(lanes), reinterpret_cast<__m256>(combined), mask));
}

// A balanced tree over 8 lanes.
template <ReduceKind kind>
[[REPLICATOR_AVX2, gnu::always_inline]] inline float fold_eight(EightFloats lanes) {
  auto v = reinterpret_cast<__m256>(lanes);
  combine_lanes<kind>(lanes, reinterpret_cast<EightFloats>(_mm256_permute2f128_ps(v, v, 1)));  // lane j and j + 4
  v = reinterpret_cast<__m256>(lanes);
  combine_lanes<kind>(lanes, reinterpret_cast<EightFloats>(_mm256_permute_ps(v, 0x4E)));  // j and j + 2
  v = reinterpret_cast<__m256>(lanes);
  combine_lanes<kind>(lanes, reinterpret_cast<EightFloats>(_mm256_permute_ps(v, 0xB1)));  // j and j + 1
  return lanes[0];
}

// One row of `unit` elements by `vectors` vectors of 8 lanes.
template <ReduceKind kind, int vectors, class Row>
[[REPLICATOR_AVX2, gnu::always_inline]] inline float reduce_unit(const Row& row, std::int64_t unit) {
  EightFloats lanes[vectors];
  const EightFloats nothing = lanes_of(identity<kind, float>());
#pragma GCC unroll 8
  for (int i = 0; i < vectors; ++i) lanes[i] = nothing;
  std::int64_t at = 0;
  for (; unit - at >= vectors * 8; at += vectors * 8)
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) combine_lanes<kind>(lanes[i], load_eight(row, at + 8 * i));
#pragma GCC unroll 8
  for (int i = 0; i < vectors; ++i) combine_rest<kind>(lanes[i], row, at + 8 * i, unit - at - 8 * i);
#pragma GCC unroll 3
  for (int half = vectors / 2; half > 0; half /= 2)
#pragma GCC unroll 4
    for (int i = 0; i < half; ++i) combine_lanes<kind>(lanes[i], lanes[i + half]);
  return fold_eight<kind>(lanes[0]);
}
template <ReduceKind kind, class Row>
[[REPLICATOR_AVX2, gnu::always_inline]] inline float reduce_unit(const Row& row, std::int64_t unit, std::int64_t lanes) {
  return lanes == 64 ? avx2::reduce_unit<kind, 8>(row, unit) : lanes == 32 ? avx2::reduce_unit<kind, 4>(row, unit)
                                                                           : avx2::reduce_unit<kind, 2>(row, unit);
}

template <ReduceKind kind>
[[REPLICATOR_AVX2]] void reduce_units(float* results, const std::byte* x, std::int64_t unit, std::int64_t count, std::int64_t lanes) {
  const std::size_t bytes = static_cast<std::size_t>(unit) * sizeof(float);
  for (std::int64_t i = 0; i < count; ++i, x += bytes) results[i] = avx2::reduce_unit<kind>(StoredRow<float>{x}, unit, lanes);
}
[[REPLICATOR_AVX2]] inline void sum_product_units(float* results, const float* a, const float* b, std::int64_t unit, std::int64_t count, std::int64_t lanes) {
  for (std::int64_t i = 0; i < count; ++i, a += unit, b += unit) results[i] = avx2::reduce_unit<ReduceKind::sum>(ProductRow{a, b}, unit, lanes);
}
template <ReduceKind kind>
[[REPLICATOR_AVX2]] void fold_unit(float* lanes, std::int64_t count) {
  const auto* x = reinterpret_cast<const std::byte*>(lanes);
  *lanes = avx2::reduce_unit<kind>(StoredRow<float>{x}, count, count);
}

}  // namespace replicator::detail::cpu::detail::avx2

#endif
