// SPDX-License-Identifier: Apache-2.0
// The loops of attention on AVX2 with FMA. A group of 16 queries is two vectors.
#pragma once

#include <cstdint>
#include <limits>

#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/attention/attention_loops.hpp>

#if defined(__x86_64__)

namespace replicator::detail::cpu {

namespace avx2 {

// 2^n for whole n from -126 to 127.
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}

// As for AVX-512: exp(x) for x <= 0. The power of two is applied in two steps, of which only the second one rounds.
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline __m256 exp_of_negative(__m256 x) {
  const __m256 clamped = _mm256_max_ps(_mm256_set1_ps(-120.0f), x);  // gives x where it is NaN
  const __m256 rounder = _mm256_set1_ps(12582912.0f);                // 1.5 * 2^23: the sum is rounded to an integer
  const __m256 n = _mm256_sub_ps(_mm256_fmadd_ps(clamped, _mm256_set1_ps(1.44269504088896341f), rounder), rounder);
  const __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), clamped));
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256 first = _mm256_max_ps(n, _mm256_set1_ps(-100.0f));
  return _mm256_mul_ps(_mm256_mul_ps(p, power_of_two(first)), power_of_two(_mm256_sub_ps(n, first)));
}

// All ones in the lanes of the queries first_lane .. first_lane + 7 that have a bit.
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline __m256 lanes_of(std::uint16_t bits, std::int64_t first_lane) {
  const __m256i lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits >> first_lane), lanes), lanes));
}
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline __m256 hide(__m256 x, std::uint16_t seen, std::int64_t first_lane) {
  return _mm256_blendv_ps(_mm256_set1_ps(-std::numeric_limits<float>::infinity()), x, lanes_of(seen, first_lane));
}
[[REPLICATOR_AVX2_FMA, gnu::always_inline]] inline __m256 drop(__m256 x, std::uint16_t kept, std::int64_t first_lane, __m256 factor) {
  return _mm256_and_ps(_mm256_mul_ps(x, factor), lanes_of(kept, first_lane));
}

[[REPLICATOR_AVX2_FMA]] inline void weigh(float* fits, const AttentionPart& part, std::int64_t vectors, float scale, float* largest, float* sums, float* factors) {
  const __m256 scales = _mm256_set1_ps(scale), kept_factor = _mm256_set1_ps(part.kept_factor), minus_infinity = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
  for (std::int64_t first = part.first_vector * tile_group; first < vectors * tile_group; first += 8) {
    float* const column = fits + first;
    const std::int64_t lane = first % tile_group, words = (first / tile_group - part.first_vector) * attention_tile;
    const std::uint16_t *const seen = part.seen ? part.seen + words : nullptr, *const kept = part.kept ? part.kept + words : nullptr;
    const __m256 before = _mm256_loadu_ps(largest + first);
    __m256 most = before;
    for (std::int64_t key = 0; key < part.keys; ++key) {
      __m256 x = _mm256_mul_ps(_mm256_loadu_ps(column + key * attention_tile), scales);
      if (seen) x = hide(x, seen[key], lane);
      most = _mm256_max_ps(x, most);  // gives `most` where x is NaN
    }
    const __m256 from = _mm256_andnot_ps(_mm256_cmp_ps(most, minus_infinity, _CMP_EQ_OQ), most);
    __m256 sum = _mm256_setzero_ps();
    for (std::int64_t key = 0; key < part.keys; ++key) {
      __m256 x = _mm256_sub_ps(_mm256_mul_ps(_mm256_loadu_ps(column + key * attention_tile), scales), from);  // the rounded product, as for the maximum
      if (seen) x = hide(x, seen[key], lane);
      const __m256 weight = exp_of_negative(x);
      _mm256_storeu_ps(column + key * attention_tile, kept ? drop(weight, kept[key], lane, kept_factor) : weight);
      sum = _mm256_add_ps(sum, weight);
    }
    const __m256 factor = exp_of_negative(_mm256_sub_ps(before, from));
    _mm256_storeu_ps(sums + first, _mm256_fmadd_ps(_mm256_loadu_ps(sums + first), factor, sum));
    _mm256_storeu_ps(factors + first, factor);
    _mm256_storeu_ps(largest + first, most);
  }
}

[[REPLICATOR_AVX2_FMA]] inline void weigh_back(float* fits, float* slopes, const AttentionPart& part, std::int64_t vectors, const float* log_sums, const float* means,
                                               float scale) {
  const __m256 scales = _mm256_set1_ps(scale), kept_factor = _mm256_set1_ps(part.kept_factor);
  for (std::int64_t first = part.first_vector * tile_group; first < vectors * tile_group; first += 8) {
    const std::int64_t lane = first % tile_group, words = (first / tile_group - part.first_vector) * attention_tile;
    const std::uint16_t *const seen = part.seen ? part.seen + words : nullptr, *const kept = part.kept ? part.kept + words : nullptr;
    const __m256 log_sum = _mm256_loadu_ps(log_sums + first), mean = _mm256_loadu_ps(means + first);
    for (std::int64_t key = 0; key < part.keys; ++key) {
      const std::int64_t at = key * attention_tile + first;
      __m256 x = _mm256_sub_ps(_mm256_mul_ps(_mm256_loadu_ps(fits + at), scales), log_sum);  // the rounded product, as in the sum
      if (seen) x = hide(x, seen[key], lane);
      const __m256 weight = exp_of_negative(x);
      __m256 slope = _mm256_loadu_ps(slopes + at);
      if (kept) slope = drop(slope, kept[key], lane, kept_factor);
      _mm256_storeu_ps(fits + at, kept ? drop(weight, kept[key], lane, kept_factor) : weight);
      _mm256_storeu_ps(slopes + at, _mm256_mul_ps(_mm256_mul_ps(weight, scales), _mm256_sub_ps(slope, mean)));
    }
  }
}

template <bool inverse>
[[REPLICATOR_AVX2_FMA]] inline void scale_rows(float* rows, const float* factors, std::int64_t count, std::int64_t columns) {
  for (std::int64_t i = 0; i < count; ++i, rows += columns) {
    const float factor = inverse ? 1 / factors[i] : factors[i];
    std::int64_t c = 0;
    for (; c + 8 <= columns; c += 8) _mm256_storeu_ps(rows + c, _mm256_mul_ps(_mm256_loadu_ps(rows + c), _mm256_set1_ps(factor)));
    for (; c < columns; ++c) rows[c] *= factor;
  }
}

[[REPLICATOR_AVX2_FMA]] inline float dot(const float* a, const float* b, std::int64_t count) {
  __m256 sums[] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (std::int64_t i = 0; i <= count; i += tile_group)  // the last turn has what is left, or zeros
    for (std::int64_t half = 0; half < 2; ++half) {
      const __m256i mask = detail::first_lanes(count - i - half * 8);
      sums[half] = _mm256_fmadd_ps(_mm256_maskload_ps(a + i + half * 8, mask), _mm256_maskload_ps(b + i + half * 8, mask), sums[half]);
    }
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, _mm256_add_ps(sums[0], sums[1]));
  for (std::int64_t half = 4; half > 0; half /= 2)
    for (std::int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace avx2

inline constexpr AttentionLoops attention_avx2{&multiply_small_avx2, &avx2::weigh, &avx2::weigh_back, &avx2::scale_rows<false>, &avx2::scale_rows<true>, &avx2::dot};

}  // namespace replicator::detail::cpu

#endif
