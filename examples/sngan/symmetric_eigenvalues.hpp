// SPDX-License-Identifier: Apache-2.0
// Eigenvalues of small dense symmetric matrices, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>

namespace sngan {

namespace rp = replicator;

namespace detail {

struct Tridiagonal {
  std::vector<double> diagonal;  // n
  std::vector<double> beside;    // n: beside[i] lies at (i, i + 1), the last is 0
};

// Householder reflections, one column after the other. Overwrites `a` [n, n], row by row.
// Source: Golub and Van Loan, "Matrix computations", 8.3.1.
inline Tridiagonal tridiagonalise(std::vector<double>& a, std::size_t n) {
  Tridiagonal t{std::vector<double>(n), std::vector<double>(n)};
  std::vector<double> v(n), w(n);
  for (std::size_t k = 0; k < n; ++k) {
    t.diagonal[k] = a[k * n + k];
    if (k + 1 == n) break;
    double squares = 0;
    for (std::size_t i = k + 1; i < n; ++i) squares += (v[i] = a[i * n + k]) * v[i];
    const double length = std::copysign(std::sqrt(squares), v[k + 1]);
    t.beside[k] = -length;
    v[k + 1] += length;
    const double factor = length * v[k + 1];  // half of |v|^2
    if (factor == 0) continue;
    double product = 0;
    for (std::size_t i = k + 1; i < n; ++i) {
      double sum = 0;
      for (std::size_t j = k + 1; j < n; ++j) sum += a[i * n + j] * v[j];
      product += (w[i] = sum / factor) * v[i];
    }
    for (std::size_t i = k + 1; i < n; ++i) w[i] -= product / (2 * factor) * v[i];
    for (std::size_t i = k + 1; i < n; ++i)
      for (std::size_t j = k + 1; j < n; ++j) a[i * n + j] -= v[i] * w[j] + w[i] * v[j];
  }
  return t;
}

// One implicitly shifted QL sweep over rows first .. last. Returns false if the matrix was split on the way.
inline bool sweep(Tridiagonal& t, std::size_t first, std::size_t last) {
  auto& d = t.diagonal;
  auto& e = t.beside;
  const double half = (d[first + 1] - d[first]) / (2 * e[first]);
  double g = d[last] - d[first] + e[first] / (half + std::copysign(std::hypot(half, 1), half));
  double sine = 1, cosine = 1, moved = 0;
  for (std::size_t i = last; i-- > first;) {
    const double f = sine * e[i], b = cosine * e[i];
    const double r = std::hypot(f, g);
    e[i + 1] = r;
    if (r == 0) {
      d[i + 1] -= moved;
      e[last] = 0;
      return false;
    }
    sine = f / r;
    cosine = g / r;
    g = d[i + 1] - moved;
    const double s = (d[i] - g) * sine + 2 * cosine * b;
    moved = sine * s;
    d[i + 1] = g + moved;
    g = cosine * s - b;
  }
  d[first] -= moved;
  e[first] = g;
  e[last] = 0;
  return true;
}

}  // namespace detail

// The eigenvalues, ascending, of a symmetric matrix [n, n] given row by row; about 3 n^3 operations. The error of each
// is about the rounding error of the largest.
// Throws BuildError unless there are n n values, and DataError if one is not finite.
// Source: Wilkinson and Reinsch, "Linear algebra", 1971 (Householder, then QL with implicit shifts).
inline std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, std::size_t n) {
  if (matrix.size() != n * n)
    throw rp::BuildError{"symmetric_eigenvalues: a matrix of " + std::to_string(n) + " rows needs " + std::to_string(n * n) + " values, found " +
                         std::to_string(matrix.size())};
  double largest = 0;
  for (const double value : matrix) {
    if (!std::isfinite(value)) throw rp::DataError{"symmetric_eigenvalues: the matrix holds " + std::to_string(value)};
    largest = std::max(largest, std::abs(value));
  }
  auto t = detail::tridiagonalise(matrix, n);
  constexpr double rounding = std::numeric_limits<double>::epsilon();
  const double least = rounding * rounding * largest;
  for (std::size_t first = 0; first < n; ++first) {
    for (int sweeps = 0;; ++sweeps) {
      std::size_t last = first;
      while (last + 1 < n && std::abs(t.beside[last]) > rounding * (std::abs(t.diagonal[last]) + std::abs(t.diagonal[last + 1])) + least) ++last;
      if (last == first) break;
      if (sweeps == 100) throw rp::DataError{"symmetric_eigenvalues: no eigenvalue was found in 100 sweeps"};
      detail::sweep(t, first, last);
    }
  }
  std::sort(t.diagonal.begin(), t.diagonal.end());
  return std::move(t.diagonal);
}

}  // namespace sngan
