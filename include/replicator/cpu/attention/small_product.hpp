// SPDX-License-Identifier: Apache-2.0
// Products of small float32 matrices that lie in the cache, on AVX2 and AVX-512. A rectangle of the result stays in registers.
//
// Each element adds its terms in order of depth, by fused multiply-add. So its bits depend neither on the other elements nor on the
// instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

// One factor or the result of a product. The elements of a row of the second factor, and of the result, are contiguous.
template <class T>
struct SmallMatrix {
  T* data;
  std::int64_t row;         // distance between rows
  std::int64_t column = 1;  // distance between columns

  SmallMatrix from(std::int64_t r, std::int64_t c = 0) const { return {data + r * row + c * column, row, column}; }
};

struct SmallExtents {
  std::int64_t rows, depth, columns;
};
// y = a b, or y += a b. The first factor may have any strides.
using MultiplySmall = void (*)(const SmallExtents& e, SmallMatrix<const float> a, SmallMatrix<const float> b, SmallMatrix<float> y, bool add);

#if defined(__x86_64__)

namespace avx512 {

template <bool last>
[[REPLICATOR_AVX512, gnu::always_inline]] inline __m512 load_columns(const float* from, [[maybe_unused]] __mmask16 mask) {
  if constexpr (last) return _mm512_maskz_loadu_ps(mask, from);
  else return _mm512_loadu_ps(from);
}
template <bool last>
[[REPLICATOR_AVX512, gnu::always_inline]] inline void store_columns(float* to, [[maybe_unused]] __mmask16 mask, __m512 lanes) {
  if constexpr (last) _mm512_mask_storeu_ps(to, mask, lanes);
  else _mm512_storeu_ps(to, lanes);
}

// `rows` rows and `vectors` vectors of the result. The mask selects the columns of the last vector. Packs instead of loops keep the
// arrays in registers.
template <int rows, int vectors, std::size_t... r, std::size_t... v, std::size_t... i>
[[REPLICATOR_AVX512, gnu::always_inline]] inline void multiply_block(const float* a, std::int64_t row, std::int64_t column, const float* b, std::int64_t b_row,
                                                                     float* y, std::int64_t y_row, std::int64_t depth, __mmask16 mask, bool add,
                                                                     std::index_sequence<r...>, std::index_sequence<v...>, std::index_sequence<i...>) {
  __m512 sums[rows * vectors];
  if (add) ((sums[i] = load_columns<i % vectors + 1 == vectors>(y + static_cast<std::int64_t>(i / vectors) * y_row + i % vectors * 16, mask)), ...);
  else ((sums[i] = _mm512_setzero_ps()), ...);
  for (; depth > 0; --depth, a += column, b += b_row) {
    const __m512 right[] = {load_columns<v + 1 == vectors>(b + v * 16, mask)...};
    const __m512 left[] = {_mm512_set1_ps(a[static_cast<std::int64_t>(r) * row])...};
    ((sums[i] = _mm512_fmadd_ps(left[i / vectors], right[i % vectors], sums[i])), ...);
  }
  (store_columns<i % vectors + 1 == vectors>(y + static_cast<std::int64_t>(i / vectors) * y_row + i % vectors * 16, mask, sums[i]), ...);
}
template <int rows, int vectors>
[[REPLICATOR_AVX512]] void multiply_rows(std::int64_t count, std::int64_t depth, SmallMatrix<const float> a, SmallMatrix<const float> b, SmallMatrix<float> y,
                                         __mmask16 mask, bool add) {
  for (; count >= rows; count -= rows, a.data += rows * a.row, y.data += rows * y.row)
    multiply_block<rows, vectors>(a.data, a.row, a.column, b.data, b.row, y.data, y.row, depth, mask, add, std::make_index_sequence<rows>{},
                                  std::make_index_sequence<vectors>{}, std::make_index_sequence<rows * vectors>{});
  if constexpr (rows > 1)
    if (count > 0) multiply_rows<rows / 2, vectors>(count, depth, a, b, y, mask, add);
}

}  // namespace avx512

inline void multiply_small_avx512(const SmallExtents& e, SmallMatrix<const float> a, SmallMatrix<const float> b, SmallMatrix<float> y, bool add) {
  for (std::int64_t first = 0; first < e.columns; first += 4 * tile_group) {
    const std::int64_t columns = std::min(e.columns - first, 4 * tile_group), rest = columns % tile_group;
    const auto mask = static_cast<__mmask16>(rest == 0 ? 0xffff : (1 << rest) - 1);
    const auto multiply = columns > 3 * tile_group   ? &avx512::multiply_rows<4, 4>
                          : columns > 2 * tile_group ? &avx512::multiply_rows<4, 3>
                          : columns > tile_group     ? &avx512::multiply_rows<8, 2>
                                                     : &avx512::multiply_rows<8, 1>;
    multiply(e.rows, e.depth, a, b.from(0, first), y.from(0, first), mask, add);
  }
}

namespace avx2 {

template <bool last>
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline __m256 load_columns(const float* from, [[maybe_unused]] __m256i mask) {
  if constexpr (last) return _mm256_maskload_ps(from, mask);
  else return _mm256_loadu_ps(from);
}
template <bool last>
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline void store_columns(float* to, [[maybe_unused]] __m256i mask, __m256 lanes) {
  if constexpr (last) _mm256_maskstore_ps(to, mask, lanes);
  else _mm256_storeu_ps(to, lanes);
}

// A row at a time: there are 16 registers, so only one factor of the left side is held.
template <std::size_t... v>
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline void add_row(__m256* sums, __m256 left, const __m256* right, std::index_sequence<v...>) {
  ((sums[v] = _mm256_fmadd_ps(left, right[v], sums[v])), ...);
}
// As for AVX-512. With `masked` the last vector has less than 8 columns.
template <int rows, int vectors, bool masked, std::size_t... r, std::size_t... v, std::size_t... i>
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline void multiply_block(const float* a, std::int64_t row, std::int64_t column, const float* b, std::int64_t b_row,
                                                                       float* y, std::int64_t y_row, std::int64_t depth, __m256i mask, bool add,
                                                                       std::index_sequence<r...>, std::index_sequence<v...>, std::index_sequence<i...>) {
  __m256 sums[rows * vectors];
  if (add) ((sums[i] = load_columns<(masked && i % vectors + 1 == vectors)>(y + static_cast<std::int64_t>(i / vectors) * y_row + i % vectors * 8, mask)), ...);
  else ((sums[i] = _mm256_setzero_ps()), ...);
  for (; depth > 0; --depth, a += column, b += b_row) {
    const __m256 right[] = {load_columns<(masked && v + 1 == vectors)>(b + v * 8, mask)...};
    (add_row(sums + r * vectors, _mm256_set1_ps(a[static_cast<std::int64_t>(r) * row]), right, std::index_sequence<v...>{}), ...);
  }
  (store_columns<(masked && i % vectors + 1 == vectors)>(y + static_cast<std::int64_t>(i / vectors) * y_row + i % vectors * 8, mask, sums[i]), ...);
}
template <int rows, int vectors, bool masked>
[[REPLICATOR_AVX2_FMA]] void multiply_rows(std::int64_t count, std::int64_t depth, SmallMatrix<const float> a, SmallMatrix<const float> b, SmallMatrix<float> y,
                                           std::int64_t lanes, bool add) {
  const __m256i mask = detail::first_lanes(lanes);
  for (; count >= rows; count -= rows, a.data += rows * a.row, y.data += rows * y.row)
    multiply_block<rows, vectors, masked>(a.data, a.row, a.column, b.data, b.row, y.data, y.row, depth, mask, add, std::make_index_sequence<rows>{},
                                          std::make_index_sequence<vectors>{}, std::make_index_sequence<rows * vectors>{});
  if constexpr (rows > 1)
    if (count > 0) multiply_rows<rows / 2, vectors, masked>(count, depth, a, b, y, lanes, add);
}

}  // namespace avx2

inline void multiply_small_avx2(const SmallExtents& e, SmallMatrix<const float> a, SmallMatrix<const float> b, SmallMatrix<float> y, bool add) {
  for (std::int64_t first = 0; first < e.columns; first += 16) {
    const std::int64_t columns = std::min<std::int64_t>(e.columns - first, 16), lanes = columns % 8;
    const auto multiply = columns > 8 ? (lanes == 0 ? &avx2::multiply_rows<6, 2, false> : &avx2::multiply_rows<6, 2, true>)
                                      : (lanes == 0 ? &avx2::multiply_rows<8, 1, false> : &avx2::multiply_rows<8, 1, true>);
    multiply(e.rows, e.depth, a, b.from(0, first), y.from(0, first), lanes, add);
  }
}

#endif

}  // namespace replicator::detail::cpu
