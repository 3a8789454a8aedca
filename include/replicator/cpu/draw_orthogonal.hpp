// SPDX-License-Identifier: Apache-2.0
// Draws random matrices with orthonormal rows or columns, for the initial values of weights. It computes in double, in a fixed order
// of eight lanes and without fused operations. So the bits are the same on every machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/draw.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

namespace detail {

inline constexpr std::size_t orthogonal_lanes = 8;

// `n`: a multiple of the lanes.
[[gnu::always_inline]] inline double dot_product(const double* a, const double* b, std::size_t n) {
  double sums[orthogonal_lanes] = {};
  for (std::size_t i = 0; i < n; i += orthogonal_lanes)
    for (std::size_t j = 0; j < orthogonal_lanes; ++j) sums[j] += a[i + j] * b[i + j];
  for (std::size_t half = orthogonal_lanes / 2; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

// Makes row `last` orthogonal to the rows before it, and gives it the length 1. One pass leaves an error where the row is nearly
// dependent on the others; a second one removes it.
// Source: Giraud, Langou, Rozloznik, van den Eshof, "Rounding error analysis of the classical Gram-Schmidt orthogonalization
// process", 2005.
[[gnu::always_inline]] inline void orthogonalise_row(double* rows, std::size_t last, std::size_t n) {
  double* const row = rows + last * n;
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t other = 0; other < last; ++other) {
      const double* const q = rows + other * n;
      const double share = dot_product(q, row, n);
      for (std::size_t i = 0; i < n; i += orthogonal_lanes)
        for (std::size_t j = 0; j < orthogonal_lanes; ++j) row[i + j] -= share * q[i + j];
    }
  const double length = std::sqrt(dot_product(row, row, n));
  for (std::size_t i = 0; i < n; ++i) row[i] /= length;
}
[[gnu::flatten]] inline void orthogonalise_row_baseline(double* rows, std::size_t last, std::size_t n) { orthogonalise_row(rows, last, n); }
[[gnu::flatten, REPLICATOR_AVX2]] inline void orthogonalise_row_avx2(double* rows, std::size_t last, std::size_t n) { orthogonalise_row(rows, last, n); }

}  // namespace detail

// Fills `values`, a row-major matrix with this number of rows, with gain * Q. Q is uniformly distributed among the matrices with
// orthonormal rows (or columns, if there are more rows). Its vectors are standard normal numbers of the PhiloxStream, made
// orthonormal one after the other: the QR decomposition whose R has a positive diagonal.
// It takes 4 m n^2 operations for m >= n: one to two seconds for 1024 x 1024.
// Source: Mezzadri, "How to generate random matrices from the classical compact groups", 2007.
template <class T>
void draw_orthogonal(std::span<T> values, std::size_t rows, std::uint64_t seed, std::uint64_t stream, std::uint32_t substream, double gain) {
  if (values.empty()) return;
  const std::size_t columns = values.size() / rows, vectors = std::min(rows, columns), length = std::max(rows, columns);
  const std::size_t padded = (length + detail::orthogonal_lanes - 1) / detail::orthogonal_lanes * detail::orthogonal_lanes;
  std::vector<double> drawn(vectors * length), q(vectors * padded);
  draw_normal(std::span{drawn}, seed, stream, substream, 0, 1);
  const auto orthogonalise = instruction_level() == InstructionLevel::baseline ? &detail::orthogonalise_row_baseline : &detail::orthogonalise_row_avx2;
  for (std::size_t v = 0; v < vectors; ++v) {
    std::copy_n(drawn.data() + v * length, length, q.data() + v * padded);
    orthogonalise(q.data(), v, padded);
    for (std::size_t i = 0; i < length; ++i) values[rows <= columns ? v * columns + i : i * columns + v] = static_cast<T>(gain * q[v * padded + i]);
  }
}

}  // namespace replicator::detail::cpu
