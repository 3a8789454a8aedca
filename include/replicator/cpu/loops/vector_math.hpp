// SPDX-License-Identifier: Apache-2.0
// exp, log, tanh, erf, sin, cos and pow in float, without branches, calls or tables. They vectorise in a plain loop, and every lane
// computes the same bits. So an element's value never depends on its position. Nothing here may be contracted to FMA.
//
// Errors in units of the last place of the result: 1 for float; for double 1, but 3 for tanh. Denormal arguments and results,
// zeros, infinities and NaN follow C's Annex F. Sine and cosine lose accuracy for magnitudes beyond 2^28 (float) or 2^20
// (double), and give NaN beyond 2^30.
//
// float is computed in double with polynomials of the degree that float needs; only exp and log are computed in float. double is
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
// x = n ln2 + r, and exp(r) = 1 + r + r^2 q(r). q is a minimax polynomial; with exact arithmetic the result would be within 2^-28.
// n ln2 is subtracted in two parts, of which the first one is exact (Cody and Waite, "Software manual for the elementary functions",
// 1980). A denormal result is computed 2^64 times too large, so that it is rounded once.
[[gnu::always_inline]] inline float exp(float x) {
  const float above = choose(-104.0f < x, x, -104.0f);  // from here on downwards the result is 0
  const float shifted = above * 1.44269504088896338700f + rounder<float>;
  const float n = shifted - rounder<float>;
  const float r = (above - n * 0.693359375f) - n * -2.12194440e-4f;
  const float q = 0x1.fffffcp-2f + r * (0x1.555492p-3f + r * (0x1.5558f2p-5f + r * (0x1.123a2p-7f + r * 0x1.6a23ccp-10f)));
  const float p = 1.0f + (r + r * r * q);
  const bool tiny = x < -80.0f;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) + static_cast<std::uint32_t>(choose(tiny, 64, 0));
  const float y = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (exponent << 23)) * choose(tiny, 0x1p-64f, 1.0f);
  return choose(x <= 0x1.62e42ep6f, y, x + infinity<float>);  // the largest number with a finite result; NaN stays NaN
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

[[gnu::always_inline]] inline float tanh(float x) {
  const float a = magnitude(x);
  const double e = exp_for_float(2.0 * static_cast<double>(choose(a < 20.0f, a, 20.0f)));
  const float y = static_cast<float>((e - 1.0) / (e + 1.0));
  return choose(x != x, x, with_sign(choose(a < 0x1p-6f, a - a * a * a * (1.0f / 3 - a * a * (2.0f / 15)), y), x));
}

// Below 1 an odd polynomial, above 1 - exp(-x^2) q(1 / (2 + x)). Both interpolate at Chebyshev nodes, and are within 4e-11.
[[gnu::always_inline]] inline float erf(float x) {
  const double wide = static_cast<double>(x);
  const double z = wide * wide;
  const double small = wide * (1.1283791670946767327 + z * (-0.37612638889635306771 + z * (0.11283791308604581452 + z * (-0.026866133235095591563 +
                       z * (0.005223783477189248115 + z * (-0.00085426379970872296266 + z * (0.0001195656256820732956 +
                       z * (-0.000013909340021874598594 + z * 1.0589380641075019183e-6))))))));
  const double a = static_cast<double>(choose(magnitude(x) < 4.0f, magnitude(x), 4.0f));  // from there on the result is 1
  const double t = 1.0 / (2.0 + a);
  const double q = -0.00016423638708161766172 + t * (0.57012324023114125402 + t * (1.0350054655420764736 + t * (2.808242585430308355 +
                   t * (-1.7633327048911012521 + t * (18.280485625983408309 + t * (-30.49761756061499718 + t * 15.469111444885890224))))));
  const float large = static_cast<float>(1.0 - exp_for_float(-(a * a)) * q);
  return choose(x != x, x, choose(magnitude(x) < 1.0f, static_cast<float>(small), with_sign(large, x)));
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
