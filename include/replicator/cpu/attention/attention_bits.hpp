// SPDX-License-Identifier: Apache-2.0
// Bits of a tile of attention's weights: which keys a query sees, and which weights dropout keeps.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <replicator/core/philox.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/philox_tile.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

inline constexpr std::int64_t attention_tile = 64;  // queries, and keys
inline constexpr std::int64_t attention_vectors = attention_tile / tile_group;

// Word v * 64 + key has a bit for each of the queries 16 v to 16 v + 15.
using AttentionBits = std::array<std::uint16_t, static_cast<std::size_t>(attention_vectors* attention_tile)>;

// The first vector of queries meets the keys of the same places: key i is hidden from the queries before it. Later vectors see all.
inline constexpr AttentionBits diagonal_bits = [] {
  AttentionBits bits{};
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i < tile_group ? 0xffff << i : 0xffff);
  return bits;
}();

// Reads a tile of a mask. Element `row * row_step + key` is not 0 where a query sees a key; a row_step of 0 means that all queries see
// the same keys. With `one_key` there is one element for all keys. Returns whether any query sees a key.
inline bool read_mask(const std::byte* mask, std::int64_t row_step, bool one_key, std::int64_t rows, std::int64_t keys, AttentionBits& bits) {
  bits.fill(0);
  std::array<std::uint8_t, attention_tile> row{};
  const auto read = [&](std::int64_t r) {
    if (one_key) std::memset(row.data(), mask[r * row_step] != std::byte{0}, static_cast<std::size_t>(keys));
    else std::memcpy(row.data(), mask + r * row_step, static_cast<std::size_t>(keys));
  };
  if (row_step == 0) read(0);
  for (std::int64_t r = 0; r < rows; ++r) {
    if (row_step != 0) read(r);
    const auto bit = static_cast<std::uint16_t>(1 << r % tile_group);
    std::uint16_t* const words = bits.data() + r / tile_group * attention_tile;
    for (std::size_t key = 0; key < attention_tile; ++key) words[key] = static_cast<std::uint16_t>(words[key] | (row[key] != 0 ? bit : 0));
  }
  std::uint16_t any = 0;
  for (const std::uint16_t word : bits) any = static_cast<std::uint16_t>(any | word);
  return any != 0;
}

// The generator of the numbers of a step, and the numbers for which a weight is dropped.
struct AttentionDropout {
  PhiloxCounter counter;
  PhiloxKey key;
  std::uint32_t threshold;  // of the upper 24 bits of a word
  float factor;             // of the weights that are kept

  static std::uint32_t threshold_of(double rate) { return static_cast<std::uint32_t>(std::ceil(static_cast<float>(rate) * 0x1p24f)); }
};

// Draws for `vectors` vectors of queries. `first` is the place of the first number, and `row_step` is the distance between rows. Both
// are multiples of four, because the generator makes blocks of four numbers.
[[REPLICATOR_AVX2]] inline void draw_kept(const AttentionDropout& dropout, std::int64_t first, std::int64_t row_step, std::int64_t vectors, AttentionBits& bits) {
  const detail::PhiloxTile make_words = detail::philox_tile();
  for (std::int64_t v = 0; v < vectors; ++v) {
    std::array<std::array<std::uint16_t, detail::philox_lanes>, 4> kept{};
    for (std::int64_t lane = 0; lane < tile_group; ++lane) {
      PhiloxCounter counter = dropout.counter;
      counter[0] = static_cast<std::uint32_t>((first + (v * tile_group + lane) * row_step) / 4);
      detail::PhiloxWords words;
      make_words(counter, dropout.key, words);
      const auto bit = static_cast<std::uint16_t>(1 << lane);
      for (std::size_t word = 0; word < 4; ++word)
        for (std::size_t j = 0; j < detail::philox_lanes; ++j)
          kept[word][j] = static_cast<std::uint16_t>(kept[word][j] | (words[word][j] >> 8 >= dropout.threshold ? bit : 0));
    }
    for (std::size_t j = 0; j < detail::philox_lanes; ++j)
      for (std::size_t word = 0; word < 4; ++word) bits[static_cast<std::size_t>(v * attention_tile) + 4 * j + word] = kept[word][j];
  }
}

}  // namespace replicator::detail::cpu
