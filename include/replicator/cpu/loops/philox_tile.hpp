// SPDX-License-Identifier: Apache-2.0
// Philox random bits for 16 blocks at once. Each instruction level has its own code, which gives the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <replicator/core/philox.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu::detail {

inline constexpr std::size_t philox_lanes = 16;
using PhiloxWords = std::array<std::array<std::uint32_t, philox_lanes>, 4>;

// Runs the generator of core/philox.hpp on 16 counters. Their first words count up.
using PhiloxTile = void (*)(PhiloxCounter counter, PhiloxKey key, PhiloxWords& words);

inline constexpr std::uint32_t philox_factors[] = {0xD2511F53u, 0xCD9E8D57u}, philox_steps[] = {0x9E3779B9u, 0xBB67AE85u};

inline void philox_tile_baseline(PhiloxCounter counter, PhiloxKey key, PhiloxWords& words) {
  auto& [c0, c1, c2, c3] = words;
  for (std::size_t j = 0; j < philox_lanes; ++j) {
    c0[j] = counter[0] + static_cast<std::uint32_t>(j);
    c1[j] = counter[1];
    c2[j] = counter[2];
    c3[j] = counter[3];
  }
  for (int round = 0; round < 10; ++round) {
    for (std::size_t j = 0; j < philox_lanes; ++j) {
      const std::uint64_t a = std::uint64_t{philox_factors[0]} * c0[j];
      const std::uint64_t b = std::uint64_t{philox_factors[1]} * c2[j];
      c0[j] = static_cast<std::uint32_t>(b >> 32) ^ c1[j] ^ key[0];
      c1[j] = static_cast<std::uint32_t>(b);
      c2[j] = static_cast<std::uint32_t>(a >> 32) ^ c3[j] ^ key[1];
      c3[j] = static_cast<std::uint32_t>(a);
    }
    key[0] += philox_steps[0];
    key[1] += philox_steps[1];
  }
}

#if defined(__x86_64__)

// Vectors hold a word in the lower half of each 64 bits. The product of two lower halves fills all 64, and its upper half is never
// cleared: nothing reads it.

namespace avx2 {

struct PhiloxBlocks {
  __m256i words[4];
};
[[REPLICATOR_AVX2, gnu::always_inline]] inline __m256i repeated(std::uint32_t word) { return _mm256_set1_epi32(static_cast<int>(word)); }
[[REPLICATOR_AVX2, gnu::always_inline]] inline void philox_round(PhiloxBlocks& blocks, __m256i first_key, __m256i second_key) {
  auto& [c0, c1, c2, c3] = blocks.words;
  const __m256i a = _mm256_mul_epu32(c0, _mm256_set1_epi64x(philox_factors[0])), b = _mm256_mul_epu32(c2, _mm256_set1_epi64x(philox_factors[1]));
  c0 = _mm256_xor_si256(_mm256_srli_epi64(b, 32), _mm256_xor_si256(c1, first_key));
  c2 = _mm256_xor_si256(_mm256_srli_epi64(a, 32), _mm256_xor_si256(c3, second_key));
  c1 = b;
  c3 = a;
}
[[REPLICATOR_AVX2]] inline void philox_tile(PhiloxCounter counter, PhiloxKey key, PhiloxWords& words) {
  for (std::size_t begin = 0; begin < philox_lanes; begin += 8) {
    PhiloxBlocks blocks[2];
    for (int half = 0; half < 2; ++half) {
      const __m256i first = _mm256_add_epi32(repeated(counter[0] + static_cast<std::uint32_t>(begin) + 4 * static_cast<std::uint32_t>(half)), _mm256_setr_epi32(0, 0, 1, 0, 2, 0, 3, 0));
      blocks[half] = {{first, repeated(counter[1]), repeated(counter[2]), repeated(counter[3])}};
    }
    __m256i keys[] = {repeated(key[0]), repeated(key[1])};
    for (int round = 0; round < 10; ++round) {
      philox_round(blocks[0], keys[0], keys[1]);
      philox_round(blocks[1], keys[0], keys[1]);
      keys[0] = _mm256_add_epi32(keys[0], repeated(philox_steps[0]));
      keys[1] = _mm256_add_epi32(keys[1], repeated(philox_steps[1]));
    }
    for (std::size_t word = 0; word < 4; ++word) {
      const __m256 lower = _mm256_shuffle_ps(_mm256_castsi256_ps(blocks[0].words[word]), _mm256_castsi256_ps(blocks[1].words[word]), 0x88);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words[word].data() + begin), _mm256_permute4x64_epi64(_mm256_castps_si256(lower), 0xd8));
    }
  }
}

}  // namespace avx2

namespace avx512 {

// All 64-bit lanes. GCC 12 warns of what its own headers leave undefined without a mask.
inline constexpr __mmask8 halves = 0xff;

struct PhiloxBlocks {
  __m512i words[4];
};
[[REPLICATOR_AVX512, gnu::always_inline]] inline __m512i repeated(std::uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }
[[REPLICATOR_AVX512, gnu::always_inline]] inline void philox_round(PhiloxBlocks& blocks, __m512i first_key, __m512i second_key) {
  constexpr int exclusive_or = 0x96;  // of three operands
  auto& [c0, c1, c2, c3] = blocks.words;
  const __m512i a = _mm512_maskz_mul_epu32(halves, c0, _mm512_set1_epi64(philox_factors[0])), b = _mm512_maskz_mul_epu32(halves, c2, _mm512_set1_epi64(philox_factors[1]));
  c0 = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(halves, b, 32), c1, first_key, exclusive_or);
  c2 = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(halves, a, 32), c3, second_key, exclusive_or);
  c1 = b;
  c3 = a;
}
[[REPLICATOR_AVX512]] inline void philox_tile(PhiloxCounter counter, PhiloxKey key, PhiloxWords& words) {
  PhiloxBlocks blocks[2];
  for (int half = 0; half < 2; ++half) {
    const __m512i first = _mm512_add_epi32(repeated(counter[0] + 8 * static_cast<std::uint32_t>(half)), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    blocks[half] = {{first, repeated(counter[1]), repeated(counter[2]), repeated(counter[3])}};
  }
  __m512i keys[] = {repeated(key[0]), repeated(key[1])};
  for (int round = 0; round < 10; ++round) {
    philox_round(blocks[0], keys[0], keys[1]);
    philox_round(blocks[1], keys[0], keys[1]);
    keys[0] = _mm512_add_epi32(keys[0], repeated(philox_steps[0]));
    keys[1] = _mm512_add_epi32(keys[1], repeated(philox_steps[1]));
  }
  for (std::size_t word = 0; word < 4; ++word)
    for (std::size_t half = 0; half < 2; ++half)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words[word].data() + 8 * half), _mm512_maskz_cvtepi64_epi32(halves, blocks[half].words[word]));
}

}  // namespace avx512

#endif

// The best one on this machine.
inline PhiloxTile philox_tile() {
#if defined(__x86_64__)
  if (instruction_level() == InstructionLevel::avx512) return &avx512::philox_tile;
  if (instruction_level() == InstructionLevel::avx2) return &avx2::philox_tile;
#endif
  return &philox_tile_baseline;
}

}  // namespace replicator::detail::cpu::detail
