// SPDX-License-Identifier: Apache-2.0
// exp(x), exp(x - y) and the sigmoid of x on AVX2, for 32 floats at a time. The operations are those of vector_math.hpp in the same order,
// so the bits are the same.
#pragma once

#include <cstdint>

#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/loops/vector_math.hpp>

#if defined(__x86_64__)

namespace replicator::detail::cpu::detail::avx2 {

// 32 floats in four registers. An operation ends in all four registers before the next one begins, and the empty assembly keeps that
// order. exp is a chain of some 20 operations that wait for each other. A compiler writes the four chains one behind the other, and
// the processor does not look far enough ahead to overlap them.
struct Floats32 {
  __m256 a, b, c, d;
};
// clang-format off
[[REPLICATOR_AVX2, gnu::always_inline]] inline Floats32 in_step(__m256 a, __m256 b, __m256 c, __m256 d) {
  asm("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d));
  return {a, b, c, d};
}
#define REPLICATOR_IN_STEP(name, of_one)                                                                                       \
  [[REPLICATOR_AVX2, gnu::always_inline]] inline Floats32 name(const Floats32& x, const Floats32& y) {                         \
    return in_step(of_one(x.a, y.a), of_one(x.b, y.b), of_one(x.c, y.c), of_one(x.d, y.d));                                    \
  }                                                                                                                            \
  [[REPLICATOR_AVX2, gnu::always_inline]] inline Floats32 name(const Floats32& x, float value) {                               \
    const __m256 y = _mm256_set1_ps(value);                                                                                    \
    return in_step(of_one(x.a, y), of_one(x.b, y), of_one(x.c, y), of_one(x.d, y));                                            \
  }
REPLICATOR_IN_STEP(operator+, _mm256_add_ps)
REPLICATOR_IN_STEP(operator-, _mm256_sub_ps)
REPLICATOR_IN_STEP(operator*, _mm256_mul_ps)
REPLICATOR_IN_STEP(operator/, _mm256_div_ps)
REPLICATOR_IN_STEP(at_least, _mm256_max_ps)  // y where x is NaN
#undef REPLICATOR_IN_STEP
// clang-format on

// The end of exp: e^r * 2^n, for the x that n and r come from. See vector_math::exp.
[[REPLICATOR_AVX2, gnu::always_inline]] inline __m256 scale_exp(__m256 power, __m256 shifted, __m256 x) {
  const __m256 tiny = _mm256_cmp_ps(x, _mm256_set1_ps(-80.0f), _CMP_LT_OQ);
  const __m256 raised = _mm256_add_ps(shifted, _mm256_and_ps(tiny, _mm256_set1_ps(64.0f)));
  const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(power), _mm256_slli_epi32(_mm256_castps_si256(raised), 23));
  const __m256 y = _mm256_mul_ps(_mm256_castsi256_ps(scaled), _mm256_blendv_ps(_mm256_set1_ps(1.0f), _mm256_set1_ps(0x1p-64f), tiny));
  const __m256 finite = _mm256_cmp_ps(x, _mm256_set1_ps(vector_math::last_finite_exp), _CMP_LE_OQ);
  return _mm256_blendv_ps(_mm256_add_ps(x, _mm256_set1_ps(vector_math::infinity<float>)), y, finite);
}
[[REPLICATOR_AVX2, gnu::always_inline]] inline Floats32 exp(const Floats32& x) {
  const Floats32 bounded = at_least(x, -104.0f);
  const Floats32 shifted = bounded * 1.44269504088896338700f + vector_math::rounder<float>;
  const Floats32 n = shifted - vector_math::rounder<float>;
  const Floats32 r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  const Floats32 q = (((r * 0x1.6a23ccp-10f + 0x1.123a2p-7f) * r + 0x1.5558f2p-5f) * r + 0x1.555492p-3f) * r + 0x1.fffffcp-2f;
  const Floats32 power = r * r * q + r + 1.0f;
  return in_step(scale_exp(power.a, shifted.a, x.a), scale_exp(power.b, shifted.b, x.b), scale_exp(power.c, shifted.c, x.c), scale_exp(power.d, shifted.d, x.d));
}

// What a loop computes from x and y.
enum class Exponential : std::uint8_t {
  of_x,           // exp(x)
  of_difference,  // exp(x - y)
  sigmoid         // of x: (x < 0 ? z : 1) / (1 + z), where z = exp(-abs(x))
};

[[REPLICATOR_AVX2, gnu::always_inline]] inline __m256 numerator(__m256 x, __m256 z) {
  return _mm256_blendv_ps(_mm256_set1_ps(1.0f), z, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}
template <Exponential what>
[[REPLICATOR_AVX2, gnu::always_inline]] inline Floats32 exponential(const Floats32& x, const Floats32& y) {
  if constexpr (what == Exponential::of_x) {
    return exp(x);
  } else if constexpr (what == Exponential::of_difference) {
    return exp(x - y);
  } else {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const Floats32 z = exp(in_step(_mm256_or_ps(x.a, sign), _mm256_or_ps(x.b, sign), _mm256_or_ps(x.c, sign), _mm256_or_ps(x.d, sign)));
    return in_step(numerator(x.a, z.a), numerator(x.b, z.b), numerator(x.c, z.c), numerator(x.d, z.d)) / (z + 1.0f);
  }
}

[[REPLICATOR_AVX2, gnu::always_inline]] inline Floats32 load_groups(const float* first, const float* second) {
  return {_mm256_loadu_ps(first), _mm256_loadu_ps(first + 8), _mm256_loadu_ps(second), _mm256_loadu_ps(second + 8)};
}
[[REPLICATOR_AVX2, gnu::always_inline]] inline void store_groups(float* first, float* second, const Floats32& x) {
  _mm256_storeu_ps(second, x.c), _mm256_storeu_ps(second + 8, x.d);
  _mm256_storeu_ps(first, x.a), _mm256_storeu_ps(first + 8, x.b);  // last, and so kept where `second` is the same group
}

// Writes `count` elements, a multiple of 16. The next 16 elements of x lie `step_x` floats further, or nowhere else with 0; likewise y.
template <Exponential what>
[[REPLICATOR_AVX2]] void exponentials(float* out, const float* x, std::int64_t step_x, const float* y, std::int64_t step_y, std::int64_t count) {
  for (; count >= 32; count -= 32, out += 32, x += 2 * step_x, y += 2 * step_y)
    store_groups(out, out + 16, exponential<what>(load_groups(x, x + step_x), load_groups(y, y + step_y)));
  if (count > 0) store_groups(out, out, exponential<what>(load_groups(x, x), load_groups(y, y)));
}

// A group of 16 elements in `out` whose exp waits for that of another group.
struct WaitingGroup {
  float* at = nullptr;

  [[REPLICATOR_AVX2, gnu::always_inline]] void add(float* group) {
    if (at != nullptr) finish(group);
    else at = group;
  }
  [[REPLICATOR_AVX2, gnu::always_inline]] void finish(float* group) {
    store_groups(at, group, exp(load_groups(at, group)));
    at = nullptr;
  }
};
// Writes the differences of a group: the first `left` elements of it belong to a row of value y, the others to one of value `next`.
[[REPLICATOR_AVX2, gnu::always_inline]] inline void subtract_group(float* out, const float* x, float y, float next, std::int64_t left) {
  const __m256 of_row = _mm256_set1_ps(y), of_next = _mm256_set1_ps(next);
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), lefts = _mm256_set1_epi32(static_cast<int>(left));
  const __m256 low = _mm256_castsi256_ps(_mm256_cmpgt_epi32(lefts, places));
  const __m256 high = _mm256_castsi256_ps(_mm256_cmpgt_epi32(lefts, _mm256_add_epi32(places, _mm256_set1_epi32(8))));
  _mm256_storeu_ps(out, _mm256_sub_ps(_mm256_loadu_ps(x), _mm256_blendv_ps(of_next, of_row, low)));
  _mm256_storeu_ps(out + 8, _mm256_sub_ps(_mm256_loadu_ps(x + 8), _mm256_blendv_ps(of_next, of_row, high)));
}
// exp(x - y) of `n` elements, a multiple of 16, in rows of `run` elements, where y has one element for each row. The first row begins
// `inside` elements before x. All rows have `count` elements from x on; what is computed behind them does not count.
[[REPLICATOR_AVX2]] inline void row_exponentials(float* out, const float* x, std::int64_t step_x, const float* y, std::int64_t run, std::int64_t inside,
                                                 std::int64_t count, std::int64_t n) {
  WaitingGroup waiting;
  std::int64_t left = run - inside;  // of the row
  for (float* const end = out + n; out != end; left += run) {
    const __m256 value = _mm256_set1_ps(*y);
    const std::int64_t whole = (left < end - out ? left : end - out) & -16;
    for (float* const stop = out + (whole & -32); out != stop; out += 32, x += 2 * step_x)
      store_groups(out, out + 16, exp(load_groups(x, x + step_x) - Floats32{value, value, value, value}));
    left -= whole, count -= whole;
    const bool another = left < count;  // row; what is behind the last one may not be read
    if ((whole & 16) != 0) {
      subtract_group(out, x, *y, *y, 16);
      waiting.add(out), out += 16, x += step_x;
    }
    if (out != end && left > 0) {  // a group of two rows
      subtract_group(out, x, *y, another ? y[1] : *y, left);
      waiting.add(out), out += 16, x += step_x, left -= 16, count -= 16;
    }
    if (another) ++y;
  }
  if (waiting.at != nullptr) waiting.finish(waiting.at);
}

}  // namespace replicator::detail::cpu::detail::avx2

#endif
