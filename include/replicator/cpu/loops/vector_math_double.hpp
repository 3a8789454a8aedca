// SPDX-License-Identifier: Apache-2.0
// exp, log, tanh, erf, sin, cos and pow in double, and the pieces that both precisions share, without branches, calls or tables. They
// vectorise in a plain loop, and every lane computes the same bits. Nothing here may be contracted to FMA.
//
// Errors in units of the last place of the result: 1 for float; for double 1, but 3 for tanh. Denormal arguments and results,
// zeros, infinities and NaN follow C's Annex F. Sine and cosine lose accuracy for magnitudes beyond 2^28 (float) or 2^20
// (double), and give NaN beyond 2^30.
//
// Source of the algorithms and coefficients: fdlibm (FreeBSD msun e_exp, e_log, e_pow, s_erf, s_expm1, k_sin, k_cos, k_sinf,
// k_cosf), rewritten without branches. "Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved. Permission
// to use, copy, modify, and distribute this software is freely granted, provided that this notice is preserved."
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

// Formatted by hand: clang-format would push the polynomials far to the right.
// clang-format off
namespace replicator::detail::cpu::vector_math {

template <class T>
struct BitsOf;
template <>
struct BitsOf<float> { using type = std::int32_t; };
template <>
struct BitsOf<double> { using type = std::int64_t; };
template <>
struct BitsOf<std::int32_t> { using type = std::int32_t; };
template <>
struct BitsOf<std::int64_t> { using type = std::int64_t; };

template <class T>
inline constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T nan = std::numeric_limits<T>::quiet_NaN();

// condition ? yes : no, by masks. The compiler would move a branch around the arithmetic, which stops the vectoriser.
template <class T>
[[gnu::always_inline]] inline T choose(bool condition, T yes, T no) {
  using Bits = typename BitsOf<T>::type;
  const Bits mask = -static_cast<Bits>(condition);
  return std::bit_cast<T>((std::bit_cast<Bits>(yes) & mask) | (std::bit_cast<Bits>(no) & ~mask));
}

template <class T>
[[gnu::always_inline]] inline T magnitude(T x) {
  using Bits = typename BitsOf<T>::type;
  return std::bit_cast<T>(std::bit_cast<Bits>(x) & std::numeric_limits<Bits>::max());
}

// magnitude of `x`, sign of `s`
template <class T>
[[gnu::always_inline]] inline T with_sign(T x, T s) {
  using Bits = typename BitsOf<T>::type;
  constexpr Bits mask = std::numeric_limits<Bits>::max();
  return std::bit_cast<T>((std::bit_cast<Bits>(x) & mask) | (std::bit_cast<Bits>(s) & ~mask));
}

// 1.5 * 2^p. Adding it rounds to an integer, which is then in the low bits.
template <class T>
inline constexpr T rounder = sizeof(T) == 4 ? T(0x1.8p23) : T(0x1.8p52);

template <class T>
[[gnu::always_inline]] inline T floor(T x) {
  constexpr T whole = sizeof(T) == 4 ? T(0x1p23) : T(0x1p52);  // from here on everything is an integer
  const T a = magnitude(x);
  const T rounded = with_sign((a + whole) - whole, x);
  const T lower = rounded - choose(rounded > x, T(1), T(0));
  return choose(a < whole, with_sign(lower, choose(lower == 0, x, lower)), x);
}

// 2^n for -1022 <= n <= 1023
[[gnu::always_inline]] inline double power_of_two(std::int64_t n) {
  return std::bit_cast<double>((n + 1023) << 52);
}

// x * 2^n, rounded once, for |n| <= 2044 (n in the low bits of `shifted`, as left by `rounder`).
[[gnu::always_inline]] inline double scale(double x, double shifted) {
  const std::int64_t n = std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(rounder<double>);
  const std::int64_t biased = n + 4096;  // logical shifts only: SSE2 has no arithmetic one for 64 bits
  const std::int64_t half = static_cast<std::int64_t>(static_cast<std::uint64_t>(biased) >> 1) - 2048;
  return x * power_of_two(half) * power_of_two(n - half);
}

struct ReducedExponent {
  double shifted, high, low, r;  // x = n ln2 + (high - low), r = high - low
};
[[gnu::always_inline]] inline ReducedExponent reduce_exponent(double x) {
  const double shifted = x * 1.44269504088896338700 + rounder<double>;
  const double n = shifted - rounder<double>;
  const double high = x - n * 6.93147180369123816490e-01;
  const double low = n * 1.90821492927058770002e-10;
  return {shifted, high, low, high - low};
}

[[gnu::always_inline]] inline double exp(double x) {
  const double clamped = choose(x < 710.0, choose(x > -746.0, x, -746.0), 710.0);
  const auto [shifted, high, low, r] = reduce_exponent(clamped);
  const double t = r * r;
  const double c = r - t * (1.66666666666666019037e-01 + t * (-2.77777777770155933842e-03 + t * (6.61375632143793436117e-05 +
                       t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))));
  const double y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
  return choose(x != x, x, scale(y, shifted));
}

[[gnu::always_inline]] inline double log(double x) {
  using Bits = std::int64_t;
  const bool tiny = x < 0x1p-1022;
  const double normal = x * choose(tiny, 0x1p54, 1.0);
  // Brings the mantissa to [sqrt(1/2), sqrt(2)), and makes the exponent a double through the bits of 2^52.
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(normal) + (0x3FF0000000000000u - 0x3FE6A09E667F3BCDu);
  const double f = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu) - 1.0;
  const double k = (std::bit_cast<double>(static_cast<Bits>((bits >> 52) | 0x4330000000000000u)) - (0x1p52 + 1023.0)) -
                   choose(tiny, 54.0, 0.0);
  const double half_square = 0.5 * f * f;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double w = z * z;
  const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 +
                         w * 1.479819860511658591e-01)));
  const double y = s * (half_square + (odd + even)) + k * 1.90821492927058770002e-10 - half_square + f +
                   k * 6.93147180369123816490e-01;
  const double special = choose(x == 0.0, -infinity<double>, choose(x < 0.0, nan<double>, x));
  return choose((x > 0.0) & (x < infinity<double>), y, special);
}

[[gnu::always_inline]] inline double tanh(double x) {
  // Takes expm1 of 2|x| where that is large, otherwise of -2|x|. Both quotients are then well conditioned.
  const double a = choose(magnitude(x) < 22.0, magnitude(x), 22.0);
  const bool large = a >= 1.0;
  const auto [shifted, high, low, r] = reduce_exponent(choose(large, 2.0 * a, -2.0 * a));
  const double correction = (high - r) - low;
  const double half = 0.5 * r;
  const double square = r * half;
  const double r1 = 1.0 + square * (-3.33333333333331316428e-02 + square * (1.58730158725481460165e-03 +
                    square * (-7.93650757867487942473e-05 + square * (4.00821782732936239552e-06 +
                    square * -2.01099218183624371326e-07))));
  const double t = 3.0 - r1 * half;
  const double e = r * (square * ((r1 - t) / (6.0 - r * t)) - correction) - correction - square;
  const double expm1_r = r - e;
  const double n = scale(1.0, shifted);
  const double expm1 = n * expm1_r + (n - 1.0);
  const double quotient = choose(large, 2.0, expm1) / (expm1 + 2.0);
  const double y = choose(large, 1.0 - quotient, -quotient);
  return choose(x != x, x, with_sign(choose(a < 0x1p-28, a, y), x));
}

// x with only the upper half of its bits.
[[gnu::always_inline]] inline double high_part(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0xFFFFFFFF00000000u);
}

[[gnu::always_inline]] inline double erf(double x) {
  const double a = magnitude(x);
  const double z = x * x;
  const double near_zero = (1.28379167095512558561e-01 + z * (-3.25042107247001499370e-01 + z * (-2.84817495755985104766e-02 +
                           z * (-5.77027029648944159157e-03 + z * -2.37630166566501626084e-05)))) /
                           (1.0 + z * (3.97917223959155352819e-01 + z * (6.50222499887672944485e-02 + z * (5.08130628187576562776e-03 +
                           z * (1.32494738004321644526e-04 + z * -3.96022827877536812320e-06)))));
  const double s = a - 1.0;
  const double near_one = (-2.36211856075265944077e-03 + s * (4.14856118683748331666e-01 + s * (-3.72207876035701323847e-01 +
                          s * (3.18346619901161753674e-01 + s * (-1.10894694282396677476e-01 + s * (3.54783043256182359371e-02 +
                          s * -2.16637559486879084300e-03)))))) /
                          (1.0 + s * (1.06420880400844228286e-01 + s * (5.40397917702171048937e-01 + s * (7.18286544141962662868e-02 +
                          s * (1.26171219808761642112e-01 + s * (1.36370839120290507362e-02 + s * 1.19844998467991074170e-02))))));
  // Further away 1 - exp(-c^2 - 0.5625 + ratio) / c, with ratios of polynomials in 1 / c^2.
  const double c = choose(a < 6.0, choose(a > 1.0, a, 1.0), 6.0);
  const double w = 1.0 / (c * c);
  const double lower = (-9.86494403484714822705e-03 + w * (-6.93858572707181764372e-01 + w * (-1.05586262253232909814e+01 +
                       w * (-6.23753324503260060396e+01 + w * (-1.62396669462573470355e+02 + w * (-1.84605092906711035994e+02 +
                       w * (-8.12874355063065934246e+01 + w * -9.81432934416914548592e+00))))))) /
                       (1.0 + w * (1.96512716674392571292e+01 + w * (1.37657754143519042600e+02 + w * (4.34565877475229228821e+02 +
                       w * (6.45387271733267880336e+02 + w * (4.29008140027567833386e+02 + w * (1.08635005541779435134e+02 +
                       w * (6.57024977031928170135e+00 + w * -6.04244152148580987438e-02))))))));
  const double upper = (-9.86494292470009928597e-03 + w * (-7.99283237680523006574e-01 + w * (-1.77579549177547519889e+01 +
                       w * (-1.60636384855821916062e+02 + w * (-6.37566443368389627722e+02 + w * (-1.02509513161107724954e+03 +
                       w * -4.83519191608651397019e+02)))))) /
                       (1.0 + w * (3.03380607434824582924e+01 + w * (3.25792512996573918826e+02 + w * (1.53672958608443695994e+03 +
                       w * (3.19985821950859553908e+03 + w * (2.55305040643316442583e+03 + w * (4.74528541206955367215e+02 +
                       w * -2.24409524465858183362e+01)))))));
  const double ratio = choose(c < 1.0 / 0.35, lower, upper);
  const double high = high_part(c);
  const double far = 1.0 - exp(-high * high - 0.5625) * exp((high - c) * (high + c) + ratio) / c;
  const double large = choose(a < 1.25, 8.45062911510467529297e-01 + near_one, choose(a < 6.0, far, 1.0));
  return choose(x != x, x, choose(a < 0.84375, x + x * near_zero, with_sign(large, x)));
}

struct ReducedAngle {
  double r, tail;
  std::uint64_t quadrant;  // in the low two bits
};
// x - n pi/2 in two doubles (Cody and Waite in three parts of 33 bits).
[[gnu::always_inline]] inline ReducedAngle reduce_angle(double x) {
  const double shifted = x * 6.36619772367581382433e-01 + rounder<double>;
  const double n = shifted - rounder<double>;
  const double a = x - n * 1.57079632673412561417e+00;
  const double b = n * 6.07710050630396597660e-11;
  const double c = n * 2.02226624871116645580e-21 + n * 8.47842766036889956997e-32;
  const double difference = a - b;
  const double error = (a - difference) - b;
  const double low = c - error;
  const double r = difference - low;
  return {r, (difference - r) - low, std::bit_cast<std::uint64_t>(shifted)};
}

// sin(x + shift pi/2)
[[gnu::always_inline]] inline double sine_from(double x, std::uint64_t shift) {
  const auto [r, tail, first] = reduce_angle(x);
  const std::uint64_t quadrant = first + shift;
  const double z = r * r;
  const double v = z * r;
  const double p = 8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * (2.75573137070700676789e-06 +
                   z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
  const double sine = r - ((z * (0.5 * tail - v * p) - tail) - v * -1.66666666666666324348e-01);
  const double q = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * (2.48015872894767294178e-05 +
                   z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
  const double half = 0.5 * z;
  const double w = 1.0 - half;
  const double cosine = w + (((1.0 - w) - half) + (z * q - r * tail));
  const std::uint64_t odd = 0 - (quadrant & 1);
  const std::uint64_t value = (std::bit_cast<std::uint64_t>(cosine) & odd) | (std::bit_cast<std::uint64_t>(sine) & ~odd);
  const double y = std::bit_cast<double>(value ^ ((quadrant & 2) << 62));
  return choose(magnitude(x) <= 0x1p30, y, nan<double>);
}
[[gnu::always_inline]] inline double sin(double x) { return choose(magnitude(x) < 0x1p-27, x, sine_from(x, 0)); }
[[gnu::always_inline]] inline double cos(double x) { return sine_from(x, 1); }

// The special cases of x^y; `finite` is |x|^y where x and y are finite and x is not zero.
template <class T>
[[gnu::always_inline]] inline T power_special(T x, T y, T finite) {
  const T ax = magnitude(x);
  const T half = T(0.5) * y;
  const bool whole = floor(y) == y;
  const bool odd = whole & (floor(half) != half);
  const bool y_infinite = magnitude(y) == infinity<T>;
  const T grow = choose(y > 0, infinity<T>, T(0));
  const T shrink = choose(y > 0, T(0), infinity<T>);
  T result = choose(ax == 0, shrink, choose(ax == infinity<T>, grow, finite));
  result = choose(y_infinite, choose(ax > 1, grow, choose(ax < 1, shrink, T(1))), result);
  const bool negative = std::bit_cast<typename BitsOf<T>::type>(x) < 0;
  result = choose(negative & odd & !y_infinite, -result, result);
  result = choose((x < 0) & (ax != infinity<T>) & !whole & !y_infinite, nan<T>, result);
  result = choose((x != x) | (y != y), x + y, result);
  return choose((x == 1) | (y == 0), T(1), result);
}

[[gnu::always_inline]] inline double pow(double x, double y) {
  // log2|x| in two doubles.
  const double ax = magnitude(x);
  const bool tiny = ax < 0x1p-1022;
  const double normal = ax * choose(tiny, 0x1p54, 1.0);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(normal);
  const double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  const bool upper = mantissa >= 1.7320508075688772;  // brought to [sqrt(3)/2, sqrt(3))
  const double m = mantissa * choose(upper, 0.5, 1.0);
  const double k = (std::bit_cast<double>((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0)) - choose(tiny, 54.0, 0.0) +
                   choose(upper, 1.0, 0.0);
  const bool middle = m >= 1.2247448713915890;
  const double bp = choose(middle, 1.5, 1.0);
  const double u = m - bp;
  const double sum = m + bp;
  const double v = 1.0 / sum;
  const double s = u * v;
  const double s_high = high_part(s);
  const double sum_high = high_part(sum);
  const double s_low = v * ((u - s_high * sum_high) - s_high * (m - (sum_high - bp)));
  const double s2 = s * s;
  const double poly = s2 * s2 * (5.99999999999994648725e-01 + s2 * (4.28571428578550184252e-01 + s2 * (3.33333329818377432918e-01 +
                      s2 * (2.72728123808534006489e-01 + s2 * (2.30660745775561754067e-01 + s2 * 2.06975017800338417784e-01))))) +
                      s_low * (s_high + s);
  const double square = s_high * s_high;
  const double t_high = high_part(3.0 + square + poly);
  const double t_low = poly - ((t_high - 3.0) - square);
  const double product = s_high * t_high;
  const double rest = s_low * t_high + t_low * s;
  const double p_high = high_part(product + rest);
  const double p_low = rest - (p_high - product);
  const double z_high = 9.61796700954437255859e-01 * p_high;
  const double z_low = -7.02846165095275826516e-09 * p_high + p_low * 9.61796693925975554329e-01 +
                       choose(middle, 1.35003920212974897128e-08, 0.0);
  const double base = choose(middle, 5.84962487220764160156e-01, 0.0);
  const double log_high = high_part(((z_high + z_low) + base) + k);
  const double log_low = z_low - (((log_high - k) - base) - z_high);
  // 2^(y log2|x|). y is cut so that products stay finite; a larger y overflows anyway.
  const double cut = choose(magnitude(y) < 0x1p70, y, with_sign(0x1p70, y));
  const double y_high = high_part(cut);
  const double e_low = (cut - y_high) * log_high + cut * log_low;
  const double e_high = y_high * log_high;
  const double e = e_low + e_high;
  const bool inside = magnitude(e) < 1100.0;
  const double a = choose(inside, e_high, choose(e > 0.0, 1100.0, -1100.0));
  const double b = choose(inside, e_low, 0.0);
  const double shifted = (a + b) + rounder<double>;
  const double whole = a - (shifted - rounder<double>);
  const double t = high_part(b + whole);
  const double f = t * 6.93147182464599609375e-01;
  const double g = (b - (t - whole)) * 6.93147180559945286227e-01 + t * -1.90465429995776804525e-09;
  const double z = f + g;
  const double w = g - (z - f);
  const double zz = z * z;
  const double c = z - zz * (1.66666666666666019037e-01 + zz * (-2.77777777770155933842e-03 + zz * (6.61375632143793436117e-05 +
                       zz * (-1.65339022054652515390e-06 + zz * 4.13813679705723846039e-08))));
  const double r = (z * c) / (c - 2.0) - (w + z * w);
  return power_special(x, y, scale(1.0 - (r - z), shifted));
}

}  // namespace replicator::detail::cpu::vector_math
