// SPDX-License-Identifier: Apache-2.0
// Reduces rows of contiguous float32 elements, each to one result, on AVX-512. The lanes stay in registers. The order of
// combination is that of accumulate_loop and fold_loop, so the bits are theirs too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <replicator/core/dtype.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/loops/lanes.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::detail::cpu::detail {

// The identity of a floating sum is minus zero, which leaves every number as it is.
template <ReduceKind kind, class T>
constexpr T identity() {
  using Limits = std::numeric_limits<T>;
  if constexpr (kind == ReduceKind::sum) return std::is_floating_point_v<T> ? -T(0) : T(0);
  else if constexpr (kind == ReduceKind::min) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  else return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

#if defined(__x86_64__)

// lane (+) x in the lanes of `mask`. If both are NaN, the sum is the lane's, as in avx2::add_to().
template <ReduceKind kind>
[[REPLICATOR_AVX512, gnu::always_inline]] inline void combine_lanes(FloatLanes& lanes, FloatLanes x, __mmask16 mask) {
  if constexpr (kind == ReduceKind::sum) {
    asm("vaddps %1, %0, %0%{%2%}"
        : "+v"(lanes)
        : "v"(x), "Yk"(mask));
  } else {
    // max and min return their second operand, the lane, if an operand is NaN or both are equal. Then a NaN of x is put in.
    const auto a = reinterpret_cast<__m512>(lanes), b = reinterpret_cast<__m512>(x);
    const __m512 chosen = kind == ReduceKind::max ? _mm512_mask_max_ps(a, mask, b, a) : _mm512_mask_min_ps(a, mask, b, a);
    lanes = reinterpret_cast<FloatLanes>(_mm512_mask_mov_ps(chosen, _mm512_mask_cmp_ps_mask(mask, b, b, _CMP_UNORD_Q), b));
  }
}

// The elements of a row: as they are stored, or the products of those of two rows.
template <class Stored>
struct StoredRow {
  const std::byte* x;
};
struct ProductRow {
  const float *a, *b;
};

// The first `count` elements (below 16) from `from`, then zeros. Reads nothing behind them.
template <class Stored>
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes load_some(const std::byte* from, std::int64_t count, __mmask16 mask) {
  if constexpr (sizeof(Stored) == sizeof(float)) return reinterpret_cast<FloatLanes>(_mm512_maskz_loadu_ps(mask, from));
  std::byte group[tile_group * sizeof(Stored)]{};
  std::memcpy(group, from, static_cast<std::size_t>(count) * sizeof(Stored));
  return load_lanes(group, Stored{});
}

// 16 elements of a row, from this one on.
template <class Stored>
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes load_group(const StoredRow<Stored>& row, std::int64_t at) {
  return load_lanes(row.x + static_cast<std::size_t>(at) * sizeof(Stored), Stored{});
}
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes load_group(const ProductRow& row, std::int64_t at) {
  return load_lanes(reinterpret_cast<const std::byte*>(row.a + at), float{}) * load_lanes(reinterpret_cast<const std::byte*>(row.b + at), float{});
}
template <class Stored>
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes load_last(const StoredRow<Stored>& row, std::int64_t at, std::int64_t count, __mmask16 mask) {
  return load_some<Stored>(row.x + static_cast<std::size_t>(at) * sizeof(Stored), count, mask);
}
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes load_last(const ProductRow& row, std::int64_t at, std::int64_t, __mmask16 mask) {
  return reinterpret_cast<FloatLanes>(_mm512_maskz_loadu_ps(mask, row.a + at)) * reinterpret_cast<FloatLanes>(_mm512_maskz_loadu_ps(mask, row.b + at));
}

// Combines the last elements of a row, `left` of them or as many as there are lanes.
template <ReduceKind kind, class Row>
[[REPLICATOR_AVX512, gnu::always_inline]] inline void combine_rest(FloatLanes& lanes, const Row& row, std::int64_t at, std::int64_t left) {
  if (left <= 0) return;
  if (left >= tile_group) return combine_lanes<kind>(lanes, load_group(row, at), all_lanes);
  const auto mask = static_cast<__mmask16>((1u << left) - 1);
  combine_lanes<kind>(lanes, load_last(row, at, left, mask), mask);
}

// A balanced tree over 16 lanes.
template <ReduceKind kind>
[[REPLICATOR_AVX512, gnu::always_inline]] inline float fold_group(FloatLanes lanes) {
  auto v = reinterpret_cast<__m512>(lanes);
  combine_lanes<kind>(lanes, reinterpret_cast<FloatLanes>(_mm512_maskz_shuffle_f32x4(all_lanes, v, v, 0x4E)), all_lanes);  // lane j and j + 8
  v = reinterpret_cast<__m512>(lanes);
  combine_lanes<kind>(lanes, reinterpret_cast<FloatLanes>(_mm512_maskz_shuffle_f32x4(all_lanes, v, v, 0xB1)), all_lanes);  // j and j + 4
  v = reinterpret_cast<__m512>(lanes);
  combine_lanes<kind>(lanes, reinterpret_cast<FloatLanes>(_mm512_maskz_permute_ps(all_lanes, v, 0x4E)), all_lanes);  // j and j + 2
  v = reinterpret_cast<__m512>(lanes);
  combine_lanes<kind>(lanes, reinterpret_cast<FloatLanes>(_mm512_maskz_permute_ps(all_lanes, v, 0xB1)), all_lanes);  // j and j + 1
  return lanes[0];
}

// nvcc refuses this cast where the argument depends on a template's parameter.
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes lanes_of(float x) { return reinterpret_cast<FloatLanes>(_mm512_set1_ps(x)); }

// One row of `unit` elements by `groups` groups of 16 lanes.
template <ReduceKind kind, int groups, class Row>
[[REPLICATOR_AVX512, gnu::always_inline]] inline float reduce_unit(const Row& row, std::int64_t unit) {
  constexpr std::int64_t group = tile_group;
  std::int64_t at = 0;
  FloatLanes a = lanes_of(identity<kind, float>()), b = a, c = a, d = a;  // four variables, because an array would lie in memory
  for (; unit - at >= groups * group; at += groups * group) {
    combine_lanes<kind>(a, load_group(row, at), all_lanes);
    if constexpr (groups >= 2) combine_lanes<kind>(b, load_group(row, at + group), all_lanes);
    if constexpr (groups == 4) {
      combine_lanes<kind>(c, load_group(row, at + 2 * group), all_lanes);
      combine_lanes<kind>(d, load_group(row, at + 3 * group), all_lanes);
    }
  }
  combine_rest<kind>(a, row, at, unit - at);
  if constexpr (groups >= 2) combine_rest<kind>(b, row, at + group, unit - at - group);
  if constexpr (groups == 4) {
    combine_rest<kind>(c, row, at + 2 * group, unit - at - 2 * group);
    combine_rest<kind>(d, row, at + 3 * group, unit - at - 3 * group);
    combine_lanes<kind>(a, c, all_lanes), combine_lanes<kind>(b, d, all_lanes);
  }
  if constexpr (groups >= 2) combine_lanes<kind>(a, b, all_lanes);
  return fold_group<kind>(a);
}

template <ReduceKind kind, class Row>
[[REPLICATOR_AVX512, gnu::always_inline]] inline float reduce_unit(const Row& row, std::int64_t unit, std::int64_t lanes) {
  return lanes == 64 ? reduce_unit<kind, 4>(row, unit) : lanes == 32 ? reduce_unit<kind, 2>(row, unit)
                                                                     : reduce_unit<kind, 1>(row, unit);
}

// Reduces `count` rows of `unit` elements that lie one behind the other, with 16, 32 or 64 lanes.
template <ReduceKind kind, class Stored>
[[REPLICATOR_AVX512]] void reduce_units(float* results, const std::byte* x, std::int64_t unit, std::int64_t count, std::int64_t lanes) {
  const std::size_t bytes = static_cast<std::size_t>(unit) * sizeof(Stored);
  for (std::int64_t i = 0; i < count; ++i, x += bytes) results[i] = reduce_unit<kind>(StoredRow<Stored>{x}, unit, lanes);
}
// The sums over the products of two such arrays.
[[REPLICATOR_AVX512]] inline void sum_product_units(float* results, const float* a, const float* b, std::int64_t unit, std::int64_t count, std::int64_t lanes) {
  for (std::int64_t i = 0; i < count; ++i, a += unit, b += unit) results[i] = reduce_unit<ReduceKind::sum>(ProductRow{a, b}, unit, lanes);
}

// fold_loop for one kept element.
template <ReduceKind kind>
[[REPLICATOR_AVX512]] void fold_unit(float* lanes, std::int64_t count) {
  const auto* x = reinterpret_cast<const std::byte*>(lanes);
  *lanes = reduce_unit<kind>(StoredRow<float>{x}, count, count);
}

#endif

}  // namespace replicator::detail::cpu::detail
