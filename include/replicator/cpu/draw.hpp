// SPDX-License-Identifier: Apache-2.0
// Fills arrays with uniform or normal numbers of a PhiloxStream, for the initial values of variables. It computes in double
// precision, in tiles. Every element takes the same instructions wherever it lies, and calls no function of the C library. So the
// bits are the same on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/philox_tile.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/loops/vector_math.hpp>

namespace replicator::detail::cpu {

namespace detail {

// Values of a tile by [lane][value of the lane's block]. A block has 4 uniform or 2 normal values.
using DrawnTile = std::array<double, philox_lanes * 4>;

// Converts the word exactly, through a conversion that vectors have.
[[gnu::always_inline]] inline double number_of(std::uint32_t word) {
  return static_cast<double>(static_cast<std::int32_t>(word ^ 0x80000000u)) + 0x1p31;
}

[[gnu::always_inline]] inline void draw_uniform_tile(const PhiloxWords& words, double low, double high, DrawnTile& out) {
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t j = 0; j < philox_lanes; ++j) out[j * 4 + k] = low + (high - low) * ((number_of(words[k][j]) + 0.5) * 0x1p-32);
}

// Source: Box and Muller, "A note on the generation of random normal deviates", 1958.
[[gnu::always_inline]] inline void draw_normal_tile(const PhiloxWords& words, double mean, double deviation, DrawnTile& out) {
  for (std::size_t pair = 0; pair < 2; ++pair) {
    std::array<double, philox_lanes> radius, direction;
    for (std::size_t j = 0; j < philox_lanes; ++j) {
      radius[j] = -2 * vector_math::log((number_of(words[2 * pair][j]) + 0.5) * 0x1p-32);
      direction[j] = vector_math::cos(2 * 3.141592653589793 * (number_of(words[2 * pair + 1][j]) * 0x1p-32));
    }
    for (std::size_t j = 0; j < philox_lanes; j += 2) {  // see loop_square_root
      DoubleVector two;
      std::memcpy(&two, &radius[j], sizeof two);
      two = square_roots(two);
      std::memcpy(&radius[j], &two, sizeof two);
    }
    for (std::size_t j = 0; j < philox_lanes; ++j) out[j * 2 + pair] = mean + deviation * radius[j] * direction[j];
  }
}

template <bool normal>
[[gnu::always_inline]] inline void draw_tile(const PhiloxWords& words, double a, double b, DrawnTile& out) {
  if constexpr (normal) draw_normal_tile(words, a, b, out);
  else draw_uniform_tile(words, a, b, out);
}
template <bool normal>
[[gnu::flatten]] void draw_tile_baseline(const PhiloxWords& words, double a, double b, DrawnTile& out) {
  draw_tile<normal>(words, a, b, out);
}
template <bool normal>
[[gnu::flatten, REPLICATOR_AVX2]] void draw_tile_avx2(const PhiloxWords& words, double a, double b, DrawnTile& out) {
  draw_tile<normal>(words, a, b, out);
}
template <bool normal>
[[gnu::flatten, REPLICATOR_AVX512]] void draw_tile_avx512(const PhiloxWords& words, double a, double b, DrawnTile& out) {
  draw_tile<normal>(words, a, b, out);
}

// Normal numbers further than `most` from the mean are drawn again, from the same words of the next substream.
template <bool normal, class T>
void draw(std::span<T> values, std::uint64_t seed, std::uint64_t stream, std::uint32_t substream, double a, double b,
          double most = std::numeric_limits<double>::infinity()) {
  constexpr std::size_t tile = philox_lanes * (normal ? 2 : 4);
  const PhiloxTile make_words = philox_tile();
  const auto make = instruction_level() == InstructionLevel::avx512 ? &draw_tile_avx512<normal>
                    : instruction_level() == InstructionLevel::avx2 ? &draw_tile_avx2<normal>
                                                                    : &draw_tile_baseline<normal>;
  const PhiloxKey key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  PhiloxCounter counter{0, substream, static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  for (std::size_t begin = 0; begin < values.size(); begin += tile, counter[0] += philox_lanes) {
    PhiloxWords words;
    DrawnTile drawn;
    make_words(counter, key, words);
    make(words, a, b, drawn);
    const auto outside = [&](double value) { return value < a - most || value > a + most; };
    PhiloxCounter again = counter;
    while (normal && std::any_of(drawn.begin(), drawn.begin() + tile, outside)) {
      DrawnTile other;
      ++again[1];
      make_words(again, key, words);
      make(words, a, b, other);
      for (std::size_t i = 0; i < tile; ++i)
        if (outside(drawn[i])) drawn[i] = other[i];
    }
    const std::size_t count = std::min(tile, values.size() - begin);
    for (std::size_t i = 0; i < count; ++i) values[begin + i] = static_cast<T>(drawn[i]);
  }
}

}  // namespace detail

// Fills `values` with uniform numbers between `low` and `high`. Word i of PhiloxStream{seed, stream, substream} decides element i.
template <class T>
void draw_uniform(std::span<T> values, std::uint64_t seed, std::uint64_t stream, std::uint32_t substream, double low, double high) {
  detail::draw<false>(values, seed, stream, substream, low, high);
}

// Fills `values` with normal numbers. Words 2i and 2i + 1 of the stream decide element i.
template <class T>
void draw_normal(std::span<T> values, std::uint64_t seed, std::uint64_t stream, std::uint32_t substream, double mean, double deviation) {
  detail::draw<true>(values, seed, stream, substream, mean, deviation);
}

// The same, but numbers further than two deviations from the mean are drawn again until they are not. For attempt k, the words come
// from the substream + k.
template <class T>
void draw_truncated_normal(std::span<T> values, std::uint64_t seed, std::uint64_t stream, std::uint32_t substream, double mean, double deviation) {
  detail::draw<true>(values, seed, stream, substream, mean, deviation, 2 * deviation);
}

}  // namespace replicator::detail::cpu
