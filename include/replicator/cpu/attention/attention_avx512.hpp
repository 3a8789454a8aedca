// SPDX-License-Identifier: Apache-2.0
// The loops of attention on AVX-512.
#pragma once

#include <cstdint>
#include <limits>

#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/attention/attention_loops.hpp>

#if defined(__x86_64__)

namespace replicator::detail::cpu {

namespace avx512 {

// exp(x) for x <= 0, to 1 unit of the last place. Below -104 it is 0. NaN stays NaN. No x here exceeds 0: what is subtracted is the
// largest of the same rounded products, or more.
// Source of the polynomial: Cephes, expf (Moshier).
[[REPLICATOR_AVX512, gnu::always_inline]] inline __m512 exp_of_negative(__m512 x) {
  const __m512 clamped = _mm512_maskz_max_ps(detail::all_lanes, _mm512_set1_ps(-120.0f), x);  // gives x where it is NaN
  const __m512 rounder = _mm512_set1_ps(12582912.0f);                                         // 1.5 * 2^23: the sum is rounded to an integer
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(clamped, _mm512_set1_ps(1.44269504088896341f), rounder), rounder);
  const __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), clamped));
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(detail::all_lanes, p, n);
}

[[REPLICATOR_AVX512, gnu::always_inline]] inline __m512 hide(__m512 x, std::uint16_t seen) {
  return _mm512_mask_mov_ps(_mm512_set1_ps(-std::numeric_limits<float>::infinity()), seen, x);
}
[[REPLICATOR_AVX512, gnu::always_inline]] inline __m512 drop(__m512 x, std::uint16_t kept, __m512 factor) { return _mm512_maskz_mul_ps(kept, x, factor); }

[[REPLICATOR_AVX512]] inline void weigh(float* fits, const AttentionPart& part, std::int64_t vectors, float scale, float* largest, float* sums,
                                        float* factors) {
  const __m512 scales = _mm512_set1_ps(scale), kept_factor = _mm512_set1_ps(part.kept_factor);
  for (std::int64_t v = part.first_vector; v < vectors; ++v) {
    float* const column = fits + v * tile_group;
    const std::uint16_t *const seen = part.seen ? part.seen + (v - part.first_vector) * attention_tile : nullptr,
                               *const kept = part.kept ? part.kept + (v - part.first_vector) * attention_tile : nullptr;
    const __m512 before = _mm512_loadu_ps(largest + v * tile_group);
    __m512 most = before;
    for (std::int64_t key = 0; key < part.keys; ++key) {
      __m512 x = _mm512_mul_ps(_mm512_loadu_ps(column + key * attention_tile), scales);
      if (seen) x = hide(x, seen[key]);
      most = _mm512_maskz_max_ps(detail::all_lanes, x, most);  // gives `most` where x is NaN
    }
    const __mmask16 nothing = _mm512_cmp_ps_mask(most, _mm512_set1_ps(-std::numeric_limits<float>::infinity()), _CMP_EQ_OQ);
    const __m512 from = _mm512_mask_mov_ps(most, nothing, _mm512_setzero_ps());
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t key = 0; key < part.keys; ++key) {
      __m512 x = _mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(column + key * attention_tile), scales), from);  // the rounded product, as for the maximum
      if (seen) x = hide(x, seen[key]);
      const __m512 weight = exp_of_negative(x);
      _mm512_storeu_ps(column + key * attention_tile, kept ? drop(weight, kept[key], kept_factor) : weight);
      sum = _mm512_add_ps(sum, weight);
    }
    const __m512 factor = exp_of_negative(_mm512_sub_ps(before, from));
    _mm512_storeu_ps(sums + v * tile_group, _mm512_fmadd_ps(_mm512_loadu_ps(sums + v * tile_group), factor, sum));
    _mm512_storeu_ps(factors + v * tile_group, factor);
    _mm512_storeu_ps(largest + v * tile_group, most);
  }
}

[[REPLICATOR_AVX512]] inline void weigh_back(float* fits, float* slopes, const AttentionPart& part, std::int64_t vectors, const float* log_sums,
                                             const float* means, float scale) {
  const __m512 scales = _mm512_set1_ps(scale), kept_factor = _mm512_set1_ps(part.kept_factor);
  for (std::int64_t v = part.first_vector; v < vectors; ++v) {
    const std::uint16_t *const seen = part.seen ? part.seen + (v - part.first_vector) * attention_tile : nullptr,
                               *const kept = part.kept ? part.kept + (v - part.first_vector) * attention_tile : nullptr;
    const __m512 log_sum = _mm512_loadu_ps(log_sums + v * tile_group), mean = _mm512_loadu_ps(means + v * tile_group);
    for (std::int64_t key = 0; key < part.keys; ++key) {
      const std::int64_t at = key * attention_tile + v * tile_group;
      __m512 x = _mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(fits + at), scales), log_sum);  // the rounded product, as in the sum
      if (seen) x = hide(x, seen[key]);
      const __m512 weight = exp_of_negative(x);
      __m512 slope = _mm512_loadu_ps(slopes + at);
      if (kept) slope = drop(slope, kept[key], kept_factor);
      _mm512_storeu_ps(fits + at, kept ? drop(weight, kept[key], kept_factor) : weight);
      _mm512_storeu_ps(slopes + at, _mm512_mul_ps(_mm512_mul_ps(weight, scales), _mm512_sub_ps(slope, mean)));
    }
  }
}

template <bool inverse>
[[REPLICATOR_AVX512]] inline void scale_rows(float* rows, const float* factors, std::int64_t count, std::int64_t columns) {
  const auto rest = static_cast<__mmask16>((1 << columns % tile_group) - 1);
  for (std::int64_t i = 0; i < count; ++i, rows += columns) {
    const __m512 factor = _mm512_set1_ps(inverse ? 1 / factors[i] : factors[i]);
    std::int64_t c = 0;
    for (; c + tile_group <= columns; c += tile_group) _mm512_storeu_ps(rows + c, _mm512_mul_ps(_mm512_loadu_ps(rows + c), factor));
    if (rest != 0) _mm512_mask_storeu_ps(rows + c, rest, _mm512_mul_ps(_mm512_maskz_loadu_ps(rest, rows + c), factor));
  }
}

[[REPLICATOR_AVX512]] inline float dot(const float* a, const float* b, std::int64_t count) {
  __m512 sum = _mm512_setzero_ps();
  std::int64_t i = 0;
  for (; i + tile_group <= count; i += tile_group) sum = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), sum);
  const auto rest = static_cast<__mmask16>((1 << (count - i)) - 1);
  sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(rest, a + i), _mm512_maskz_loadu_ps(rest, b + i), sum);
  alignas(64) float lanes[tile_group];
  _mm512_store_ps(lanes, sum);
  for (std::int64_t half = tile_group / 2; half > 0; half /= 2)
    for (std::int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace avx512

inline constexpr AttentionLoops attention_avx512{&multiply_small_avx512, &avx512::weigh, &avx512::weigh_back, &avx512::scale_rows<false>, &avx512::scale_rows<true>, &avx512::dot};

}  // namespace replicator::detail::cpu

#endif
