// SPDX-License-Identifier: Apache-2.0
// The loops of unit_loops.hpp on AVX2, for rows stored as float32. A group of 16 lanes is two vectors. The order of combination is the
// same, so the bits are too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
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
// The first step of this tree for two rows: lane j and j + 4 of one row in the lower half, of the other row in the upper one.
template <ReduceKind kind>
[[REPLICATOR_AVX2, gnu::always_inline]] inline __m256 fold_pair(const EightFloats& one, const EightFloats& other) {
  const auto a = reinterpret_cast<__m256>(one), b = reinterpret_cast<__m256>(other);
  auto halves = reinterpret_cast<EightFloats>(_mm256_permute2f128_ps(a, b, 0x20));
  combine_lanes<kind>(halves, reinterpret_cast<EightFloats>(_mm256_permute2f128_ps(a, b, 0x31)));
  return reinterpret_cast<__m256>(halves);
}
// Four of these trees at once: lanes of several rows lie side by side as soon as they fit into one vector.
template <ReduceKind kind>
[[REPLICATOR_AVX2, gnu::always_inline]] inline __m128 fold_four(const EightFloats (&lanes)[4]) {
  const __m256 even = fold_pair<kind>(lanes[0], lanes[2]), odd = fold_pair<kind>(lanes[1], lanes[3]);
  auto quarters = reinterpret_cast<EightFloats>(_mm256_shuffle_ps(even, odd, 0x44));
  combine_lanes<kind>(quarters, reinterpret_cast<EightFloats>(_mm256_shuffle_ps(even, odd, 0xEE)));  // j and j + 2
  const auto q = reinterpret_cast<__m256>(quarters);
  const __m128 low = _mm256_castps256_ps128(q), high = _mm256_extractf128_ps(q, 1);
  EightFloats results = reinterpret_cast<EightFloats>(_mm256_castps128_ps256(_mm_shuffle_ps(low, high, 0x88)));
  combine_lanes<kind>(results, reinterpret_cast<EightFloats>(_mm256_castps128_ps256(_mm_shuffle_ps(low, high, 0xDD))));  // j and j + 1
  return _mm256_castps256_ps128(reinterpret_cast<__m256>(results));
}

// lanes[i] (+) lanes[i + half] for i < half.
template <ReduceKind kind, std::size_t... i>
[[REPLICATOR_AVX2, gnu::always_inline]] inline void join_halves(EightFloats* lanes, std::index_sequence<i...>) {
  (combine_lanes<kind>(lanes[i], lanes[i + sizeof...(i)]), ...);
}
// One row of `unit` elements by vectors of 8 lanes, without the tree over the last 8. Each vector has its own place in the code, because
// GCC keeps an array in memory where a loop runs over it.
template <ReduceKind kind, class Row, std::size_t... i>
[[REPLICATOR_AVX2, gnu::always_inline]] inline EightFloats reduce_unit(const Row& row, std::int64_t unit, std::index_sequence<i...>) {
  constexpr std::size_t vectors = sizeof...(i);
  constexpr auto width = static_cast<std::int64_t>(8 * vectors);
  EightFloats lanes[] = {(static_cast<void>(i), lanes_of(identity<kind, float>()))...};
  std::int64_t at = 0;
  for (; unit - at >= width; at += width) (combine_lanes<kind>(lanes[i], load_eight(row, at + static_cast<std::int64_t>(8 * i))), ...);
  if (at < unit) (combine_rest<kind>(lanes[i], row, at + static_cast<std::int64_t>(8 * i), unit - at - static_cast<std::int64_t>(8 * i)), ...);
  if constexpr (vectors == 8) join_halves<kind>(lanes, std::make_index_sequence<4>{});
  if constexpr (vectors >= 4) join_halves<kind>(lanes, std::make_index_sequence<2>{});
  join_halves<kind>(lanes, std::make_index_sequence<1>{});
  return lanes[0];
}
template <ReduceKind kind, class Row>
[[REPLICATOR_AVX2, gnu::always_inline]] inline EightFloats reduce_unit(const Row& row, std::int64_t unit, std::int64_t lanes) {
  return lanes == 64 ? avx2::reduce_unit<kind>(row, unit, std::make_index_sequence<8>{}) : lanes == 32 ? avx2::reduce_unit<kind>(row, unit, std::make_index_sequence<4>{})
                                                                                                       : avx2::reduce_unit<kind>(row, unit, std::make_index_sequence<2>{});
}

// `row_at(i)` is row i of `count`.
template <ReduceKind kind, class RowAt>
[[REPLICATOR_AVX2, gnu::always_inline]] inline void reduce_rows(float* results, const RowAt& row_at, std::int64_t unit, std::int64_t count, std::int64_t lanes) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    EightFloats of[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) of[r] = avx2::reduce_unit<kind>(row_at(i + r), unit, lanes);
    _mm_storeu_ps(results + i, fold_four<kind>(of));
  }
  for (; i < count; ++i) results[i] = fold_eight<kind>(avx2::reduce_unit<kind>(row_at(i), unit, lanes));
}
template <ReduceKind kind>
[[REPLICATOR_AVX2]] void reduce_units(float* results, const std::byte* x, std::int64_t unit, std::int64_t count, std::int64_t lanes) {
  const auto row_at = [=](std::int64_t i) { return StoredRow<float>{x + static_cast<std::size_t>(i * unit) * sizeof(float)}; };
  avx2::reduce_rows<kind>(results, row_at, unit, count, lanes);
}
[[REPLICATOR_AVX2]] inline void sum_product_units(float* results, const float* a, const float* b, std::int64_t unit, std::int64_t count, std::int64_t lanes) {
  const auto row_at = [=](std::int64_t i) { return ProductRow{a + i * unit, b + i * unit}; };
  avx2::reduce_rows<ReduceKind::sum>(results, row_at, unit, count, lanes);
}
template <ReduceKind kind>
[[REPLICATOR_AVX2]] void fold_unit(float* lanes, std::int64_t count) {
  const auto* x = reinterpret_cast<const std::byte*>(lanes);
  *lanes = fold_eight<kind>(avx2::reduce_unit<kind>(StoredRow<float>{x}, count, count));
}

}  // namespace replicator::detail::cpu::detail::avx2

#endif
