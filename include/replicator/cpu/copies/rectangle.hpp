// SPDX-License-Identifier: Apache-2.0
// Moves rectangles of words through registers, transposed or straight. Vectors are loaded row by row, and passes of shuffles turn
// their columns into rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

// A rectangle of words of 4 bytes, with at most `side` rows and columns. Row r of the source begins `row_at[r]` bytes after
// `from`. Row q of the result begins `result_at[q]` bytes after `to`. In a transposition, a row of the result is a column of the
// source. Both tables have `side` entries.
struct Rectangle {
  static constexpr int side = 16;
  const std::int64_t *row_at, *result_at;
  int rows, columns;  // of the source
};

// Moves a rectangle. `other_half` is 0 where words are whole. Otherwise the two halves of a word are apart in the source (pairs
// of bfloat16): its rows hold the lower halves, and the upper halves begin `other_half` bytes further.
using RectangleMove = void (*)(const std::byte* from, std::byte* to, const Rectangle& rectangle, std::int64_t other_half);

namespace detail {

using Words4 = std::uint32_t __attribute__((vector_size(16)));
using Words8 = std::uint32_t __attribute__((vector_size(32)));
using Words16 = std::uint32_t __attribute__((vector_size(64)));

// One step of a transposition, in two rows that are `distance` apart (a power of two). It exchanges the upper right of each
// square of 2 x `distance` words with its lower left. The result is the index, in both rows, of the word that comes to lie at i
// of the upper or the lower row.
template <int lanes, int distance, bool lower>
struct ExchangedWord {
  constexpr int operator()(int i) const { return lower ? (i & distance ? lanes + i : i + distance) : (i & distance ? lanes + i - distance : i); }
};
// The indices are written out, because nvcc's front end drops the dots of a pack.
template <int distance, bool lower>
[[gnu::always_inline]] inline void exchanged(Words4& out, const Words4& a, const Words4& b) {
  constexpr ExchangedWord<4, distance, lower> at;
  out = __builtin_shufflevector(a, b, at(0), at(1), at(2), at(3));
}
template <int distance, bool lower>
[[gnu::always_inline]] inline void exchanged(Words8& out, const Words8& a, const Words8& b) {
  constexpr ExchangedWord<8, distance, lower> at;
  out = __builtin_shufflevector(a, b, at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
}
template <int distance, bool lower>
[[gnu::always_inline]] inline void exchanged(Words16& out, const Words16& a, const Words16& b) {
  constexpr ExchangedWord<16, distance, lower> at;
  out = __builtin_shufflevector(a, b, at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15));
}

template <int distance, class Words>
[[gnu::always_inline]] inline void exchange(Words& upper, Words& lower) {
  Words rows[2];
  exchanged<distance, false>(rows[0], upper, lower);
  exchanged<distance, true>(rows[1], upper, lower);
  upper = rows[0];
  lower = rows[1];
}
template <int distance, class Words, std::size_t... i>
[[gnu::always_inline]] inline void exchange_all(Words* rows, std::index_sequence<i...>) {
  ((i & distance ? void() : exchange<distance>(rows[i], rows[i + distance])), ...);
}
// Transposes as many rows as there are words in a row.
template <class Words, std::size_t... i>
[[gnu::always_inline]] inline void transpose(Words* rows, std::index_sequence<i...> lanes) {
  exchange_all<1>(rows, lanes);
  exchange_all<2>(rows, lanes);
  if constexpr (sizeof...(i) > 4) exchange_all<4>(rows, lanes);
  if constexpr (sizeof...(i) > 8) exchange_all<8>(rows, lanes);
}

// Moves word by word, from row `first_row` and column `first_column` on.
template <bool transposed>
void move_words(const std::byte* from, std::byte* to, const Rectangle& a, std::int64_t other_half, int first_row = 0, int first_column = 0) {
  for (int r = first_row; r < a.rows; ++r)
    for (int c = first_column; c < a.columns; ++c) {
      std::byte* const word = transposed ? to + a.result_at[c] + 4 * r : to + a.result_at[r] + 4 * c;
      if (other_half == 0) {
        std::memcpy(word, from + a.row_at[r] + 4 * c, 4);
      } else {
        std::memcpy(word, from + a.row_at[r] + 2 * c, 2);
        std::memcpy(word + 2, from + a.row_at[r] + other_half + 2 * c, 2);
      }
    }
}
inline void move_straight(const std::byte* from, std::byte* to, const Rectangle& a, std::int64_t other_half) {
  if (other_half != 0) return move_words<false>(from, to, a, other_half);
  for (int r = 0; r < a.rows; ++r) std::memcpy(to + a.result_at[r], from + a.row_at[r], static_cast<std::size_t>(a.columns) * 4);
}

// Transposes squares of as many rows as a vector has words, and moves the rest word by word.
template <class Words, std::size_t... i>
[[gnu::always_inline]] inline void transpose_squares(const std::byte* from, std::byte* to, const Rectangle& a, std::index_sequence<i...> lanes) {
  constexpr int side = sizeof...(i);
  const int whole_rows = a.rows / side * side, whole_columns = a.columns / side * side;
  for (int r = 0; r < whole_rows; r += side)
    for (int c = 0; c < whole_columns; c += side) {
      Words rows[side];
      (std::memcpy(&rows[i], from + a.row_at[r + static_cast<int>(i)] + 4 * c, sizeof(Words)), ...);
      transpose(rows, lanes);
      (std::memcpy(to + a.result_at[c + static_cast<int>(i)] + 4 * r, &rows[i], sizeof(Words)), ...);
    }
  move_words<true>(from, to, {a.row_at, a.result_at, whole_rows, a.columns}, 0, 0, whole_columns);
  move_words<true>(from, to, a, 0, whole_rows, 0);
}
inline void transpose_baseline(const std::byte* from, std::byte* to, const Rectangle& a, std::int64_t other_half) {
  if (other_half != 0) move_words<true>(from, to, a, other_half);
  else transpose_squares<Words4>(from, to, a, std::make_index_sequence<4>{});
}
[[gnu::flatten, REPLICATOR_AVX2]] inline void transpose_avx2(const std::byte* from, std::byte* to, const Rectangle& a, std::int64_t other_half) {
  if (other_half != 0) move_words<true>(from, to, a, other_half);
  else transpose_squares<Words8>(from, to, a, std::make_index_sequence<8>{});
}

#if defined(__x86_64__)

// Loads and stores the words that the mask selects. Memory may end behind them. Words that are not selected are loaded as zero.
[[REPLICATOR_AVX512, gnu::always_inline]] inline void load_words(Words16& words, const std::byte* from, std::uint16_t mask) {
  words = reinterpret_cast<Words16>(_mm512_maskz_loadu_epi32(mask, from));
}
// Assembly, because the intrinsic takes all 32 bytes as a value and would read beyond the end.
[[REPLICATOR_AVX512, gnu::always_inline]] inline void load_halves(Words16& words, const std::byte* from, std::uint16_t mask) {
  asm("vpmovzxwd %1, %0%{%2%}%{z%}"
      : "=v"(words)
      : "m"(*reinterpret_cast<const std::byte(*)[32]>(from)), "Yk"(mask));
}
[[REPLICATOR_AVX512, gnu::always_inline]] inline void store_words(std::byte* to, const Words16& words, std::uint16_t mask) {
  _mm512_mask_storeu_epi32(to, mask, reinterpret_cast<__m512i>(words));
}
// Loads words that have their upper halves `other_half` bytes further.
[[REPLICATOR_AVX512, gnu::always_inline]] inline void load_pairs(Words16& words, const std::byte* from, std::int64_t other_half, std::uint16_t mask) {
  Words16 upper;
  load_halves(words, from, mask);
  load_halves(upper, from + other_half, mask);
  words |= upper << 16;
}

template <bool transposed, std::size_t... i>
[[REPLICATOR_AVX512, gnu::always_inline]] inline void move_lanes(const std::byte* from, std::byte* to, const Rectangle& a,
                                                                 std::int64_t other_half, std::index_sequence<i...>) {
  const auto first = [](int words) __attribute__((always_inline)) { return static_cast<std::uint16_t>((1u << words) - 1); };
  const int result_rows = transposed ? a.columns : a.rows, result_words = transposed ? a.rows : a.columns;
  const std::uint16_t loaded = first(a.columns), stored = first(result_words);
  Words16 rows[sizeof...(i)]{};
  if (other_half == 0) ((static_cast<int>(i) < a.rows ? load_words(rows[i], from + a.row_at[i], loaded) : void()), ...);
  else ((static_cast<int>(i) < a.rows ? load_pairs(rows[i], from + a.row_at[i], other_half, loaded) : void()), ...);
  if constexpr (transposed) transpose(rows, std::index_sequence<i...>{});
  if (result_words == Rectangle::side) ((static_cast<int>(i) < result_rows ? void(std::memcpy(to + a.result_at[i], &rows[i], sizeof rows[i])) : void()), ...);
  else ((static_cast<int>(i) < result_rows ? store_words(to + a.result_at[i], rows[i], stored) : void()), ...);
}
template <bool transposed>
[[REPLICATOR_AVX512]] void move_avx512(const std::byte* from, std::byte* to, const Rectangle& a, std::int64_t other_half) {
  move_lanes<transposed>(from, to, a, other_half, std::make_index_sequence<Rectangle::side>{});
}

#else

template <bool transposed>
inline constexpr RectangleMove move_avx512 = nullptr;  // no processor of this kind has that level

#endif

}  // namespace detail

// The function for this instruction level. All levels give the same bits.
inline RectangleMove rectangle_move(bool transposed, InstructionLevel level) {
  if (level == InstructionLevel::avx512) return transposed ? detail::move_avx512<true> : detail::move_avx512<false>;
  if (!transposed) return &detail::move_straight;
  return level == InstructionLevel::avx2 ? &detail::transpose_avx2 : &detail::transpose_baseline;
}

}  // namespace replicator::detail::cpu
