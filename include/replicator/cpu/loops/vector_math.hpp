// SPDX-License-Identifier: Apache-2.0
// exp, log, tanh, erf, sin, cos and pow in float, without branches, calls or tables. They vectorise in a plain loop, and every lane
// computes the same bits. So an element's value never depends on its position. Nothing here may be contracted to FMA.
//
// Errors in units of the last place of the result: 1 for float; for double 1, but 3 for tanh. Denormal arguments and results,
// zeros, infinities and NaN follow C's Annex F. Sine and cosine lose accuracy for magnitudes beyond 2^28 (float) or 2^20
// (double), and give NaN beyond 2^30.
//
// The float versions of sin, cos and pow compute in double, with polynomials of the degree that float needs. The double versions are
// in vector_math_double.hpp. GPUs take the functions of CUDA, which are other formulas.
//
// Source of the algorithms and coefficients: fdlibm (FreeBSD msun e_exp, e_log, e_pow, s_expm1, k_sin, k_cos, k_sinf,
// k_cosf), rewritten without branches. "Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved. Permission
// to use, copy, modify, and distribute this software is freely granted, provided that this notice is preserved."
#pragma once

#include <bit>
#include <cstdint>

#include <replicator/cpu/loops/vector_math_double.hpp>

// Formatted by hand: clang-format would push the polynomials far to the right.
// clang-format off
namespace replicator::detail::cpu::vector_math {

// x lies within [-200, 200], where every result beyond float's range is still one of double's.
[[gnu::always_inline]] inline double exp_for_float(double x) {
  const double shifted = x * 1.44269504088896338700 + rounder<double>;
  const double r = x - (shifted - rounder<double>) * 6.93147180559945286227e-01;
  // Taylor to r^8 / 8!: below 2^-32 of the result for |r| <= ln2 / 2
  const double p = 1.0 + r * (1.0 + r * (1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720 +
                   r * (1.0 / 5040 + r * (1.0 / 40320))))))));
  const std::uint64_t n = std::bit_cast<std::uint64_t>(shifted) << 52;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) + n);
}
// Brings x within [-200, 200]. NaN becomes a number.
template <class T>
[[gnu::always_inline]] inline T clamp_exponent(T x) { return choose(x < T(200), choose(x > T(-200), x, T(-200)), T(200)); }
// Splits x into n ln2 + r with a whole number n and a small r, so that e^x = 2^n e^r. The low bits of `shifted` hold n, because `rounder`
// was added. ln2 is the sum of two numbers; n times the first one is exact, so r loses no digits.
// Source: Cody and Waite, "Software manual for the elementary functions", 1980.
struct ReducedFloat {
  float shifted, r;
};
[[gnu::always_inline]] inline ReducedFloat reduce_exponent(float x) {
  const float shifted = x * 1.44269504088896338700f + rounder<float>;
  const float n = shifted - rounder<float>;
  return {shifted, (x - n * 0.693359375f) - n * -2.12194440e-4f};
}
// e^r - 1 = r + r^2 q(r) with a minimax polynomial q. With exact arithmetic, 1 plus the result would be within 2^-28 of e^r.
[[gnu::always_inline]] inline float expm1_reduced(float r) {
  const float q = 0x1.fffffcp-2f + r * (0x1.555492p-3f + r * (0x1.5558f2p-5f + r * (0x1.123a2p-7f + r * 0x1.6a23ccp-10f)));
  return r + r * r * q;
}
// y * 2^n, for normal results
[[gnu::always_inline]] inline float scale(float y, float shifted) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) + (std::bit_cast<std::uint32_t>(shifted) << 23));
}

// The largest number with a finite exp
inline constexpr float last_finite_exp = 0x1.62e42ep6f;

// A denormal result is computed 2^64 times too large, so that it is rounded once. exponential_avx2.hpp has the same operations.
[[gnu::always_inline]] inline float exp(float x) {
  const auto [shifted, r] = reduce_exponent(choose(-104.0f < x, x, -104.0f));  // from here on downwards the result is 0
  const bool tiny = x < -80.0f;
  const float y = scale(1.0f + expm1_reduced(r), shifted + choose(tiny, 64.0f, 0.0f)) * choose(tiny, 0x1p-64f, 1.0f);
  return choose(x <= last_finite_exp, y, x + infinity<float>);  // NaN stays NaN
}

[[gnu::always_inline]] inline float log(float x) {
  const bool tiny = x < 0x1p-126f;
  const float normal = x * choose(tiny, 0x1p25f, 1.0f);
  // Unsigned, because an infinity or NaN would overflow.
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(normal) + (0x3F800000u - 0x3F3504F3u));
  const float k = static_cast<float>((bits >> 23) - 127) - choose(tiny, 25.0f, 0.0f);
  const float f = std::bit_cast<float>((bits & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  const float w = z * z;
  const float r = w * (0.40000972152f + w * 0.24279078841f) + z * (0.66666662693f + w * 0.28498786688f);
  const float half_square = 0.5f * f * f;
  const float y = s * (half_square + r) + k * 9.0580006145e-06f - half_square + f + k * 6.9313812256e-01f;
  const float special = choose(x == 0.0f, -infinity<float>, choose(x < 0.0f, nan<float>, x));
  return choose((x > 0.0f) & (x < infinity<float>), y, special);
}

// Near 0 the odd minimax polynomial x + x (-z / 4 + z q(z)) with z = x^2, further away 1 - 2 / (1 + e^(2x)). z / 4 and 2^n + 1 are
// exact, so that less is rounded.
[[gnu::always_inline]] inline float tanh(float x) {
  const float a = choose(magnitude(x) < 10.0f, magnitude(x), 10.0f);  // from there on the result is 1
  const float z = a * a;
  const float q = -0x1.555526p-4f + z * (0x1.110e50p-3f + z * (-0x1.b9ab92p-5f + z * (0x1.620470p-6f + z * (-0x1.0b3fe8p-7f +
                  z * (0x1.45006ap-9f + z * -0x1.b5b788p-12f)))));
  const float small = a + a * (z * q - z * 0.25f);
  const auto [shifted, r] = reduce_exponent(a + a);
  const float power = scale(1.0f, shifted);
  const float large = 1.0f - 2.0f / ((power + 1.0f) + power * expm1_reduced(r));
  return choose(x != x, x, with_sign(choose(a < 0.9375f, small, large), x));
}

// Near 0 an odd polynomial, further away 1 - e^(-x^2) q(|x|). Both are minimax polynomials. x^2 is rounded in two parts: the upper
// half of x has an exact square.
[[gnu::always_inline]] inline float erf(float x) {
  const float z = x * x;
  const float small = x + x * (0x1.06eba8p-3f + z * (-0x1.81273ep-2f + z * (0x1.ce2ce6p-4f + z * (-0x1.b7f71ap-6f +
                      z * (0x1.53f224p-8f + z * (-0x1.a3515ep-11f + z * 0x1.4771fep-14f))))));
  const float a = choose(magnitude(x) < 4.0f, magnitude(x), 4.0f);  // from there on the result is 1
  const float high = std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & 0xFFFFF000u);
  const auto [shifted, r] = reduce_exponent(-(high * high));
  const float power = scale(1.0f + expm1_reduced(r - (a - high) * (a + high)), shifted);
  const float s = a - 0.875f;
  const float q = 0x1.db747ep-2f + s * (-0x1.43697ep-2f + s * (0x1.80db9ep-3f + s * (-0x1.9c1ca6p-4f + s * (0x1.8ea838p-5f +
                  s * (-0x1.4e8fc8p-6f + s * (0x1.b64df4p-8f + s * (-0x1.76b028p-10f + s * 0x1.29c730p-13f)))))));
  return choose(x != x, x, choose(magnitude(x) < 0.875f, small, with_sign(1.0f - power * q, x)));
}

[[gnu::always_inline]] inline float sine_from(float x, std::uint64_t shift) {
  const double wide = static_cast<double>(x);
  const double shifted = wide * 6.36619772367581382433e-01 + rounder<double>;
  const double n = shifted - rounder<double>;
  const double r = wide - n * 1.57079631090164184570e+00 - n * 1.58932547735281966916e-08;
  const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(shifted) + shift;
  const double z = r * r;
  const double sine = r + r * z * (-0.166666666416265235595 + z * (0.0083333293858894631756 + z * (-0.000198393348360966317347 +
                      z * 0.0000027183114939898219064)));
  const double cosine = 1.0 + z * (-0.499999997251031003120 + z * (0.0416666233237390631894 + z * (-0.00138867637746099294692 +
                        z * 0.0000243904487962774090654)));
  const std::uint64_t odd = 0 - (quadrant & 1);
  const std::uint64_t value = (std::bit_cast<std::uint64_t>(cosine) & odd) | (std::bit_cast<std::uint64_t>(sine) & ~odd);
  const auto y = static_cast<float>(std::bit_cast<double>(value ^ ((quadrant & 2) << 62)));
  return choose(magnitude(x) <= 0x1p30f, y, nan<float>);
}
[[gnu::always_inline]] inline float sin(float x) { return choose(magnitude(x) < 0x1p-12f, x, sine_from(x, 0)); }
[[gnu::always_inline]] inline float cos(float x) { return sine_from(x, 1); }

[[gnu::always_inline]] inline float pow(float x, float y) {
  const double e = static_cast<double>(y) * log(static_cast<double>(magnitude(x)));
  return power_special(x, y, static_cast<float>(exp_for_float(clamp_exponent(e))));
}

}  // namespace replicator::detail::cpu::vector_math
