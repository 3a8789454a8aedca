// SPDX-License-Identifier: Apache-2.0
// The Frechet distance between two sets of feature vectors, each modelled as a normal distribution.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <replicator/core/array.hpp>

#include "symmetric_eigenvalues.hpp"

namespace sngan {

namespace rp = replicator;

struct Gaussian {
  std::vector<double> mean;        // d
  std::vector<double> covariance;  // d d, row by row
};

// Mean and covariance (divisor: examples - 1) of features [N, d].
// Throws BuildError for another rank or less than two examples.
inline Gaussian fit_gaussian(const rp::Array<float>& features) {
  const rp::Shape& shape = features.shape();
  if (shape.rank() != 2 || shape[0] < 2)
    throw rp::BuildError{"fit_gaussian: the features must be [N, d] of at least two examples, found " + shape.text()};
  const auto count = static_cast<std::size_t>(shape[0]), d = static_cast<std::size_t>(shape[1]);
  Gaussian result{std::vector<double>(d), std::vector<double>(d * d)};
  for (std::size_t n = 0; n < count; ++n)
    for (std::size_t i = 0; i < d; ++i) result.mean[i] += static_cast<double>(features.data()[n * d + i]);
  for (auto& value : result.mean) value /= static_cast<double>(count);
  std::vector<double> centred(d);
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t i = 0; i < d; ++i) centred[i] = static_cast<double>(features.data()[n * d + i]) - result.mean[i];
    for (std::size_t i = 0; i < d; ++i)
      for (std::size_t j = 0; j < d; ++j) result.covariance[i * d + j] += centred[i] * centred[j];
  }
  for (auto& value : result.covariance) value /= static_cast<double>(count - 1);
  return result;
}

namespace detail {

// Cholesky: lower triangular L with L L^T = a. `a` is symmetric and positive semidefinite up to rounding. A column with
// a pivot of the size of rounding errors becomes zero.
inline std::vector<double> cholesky(const std::vector<double>& a, std::size_t n) {
  double largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, a[i * n + i]);
  const double least = static_cast<double>(n) * std::numeric_limits<double>::epsilon() * largest;
  std::vector<double> l(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) rest -= l[i * n + k] * l[j * n + k];
      if (i == j) l[i * n + i] = rest > least ? std::sqrt(rest) : 0;
      else if (l[j * n + j] > 0) l[i * n + j] = rest / l[j * n + j];
    }
  return l;
}

inline void require_finite(const Gaussian& gaussian, const char* which) {
  for (const auto* values : {&gaussian.mean, &gaussian.covariance})
    for (const double value : *values)
      if (!std::isfinite(value))
        throw rp::DataError{std::string{"frechet_distance: a mean or covariance of the "} + which + " features is " + std::to_string(value) +
                            ": look for what is not finite in the network that gave them, or in its pictures"};
}

// L^T b L
inline std::vector<double> between(const std::vector<double>& l, const std::vector<double>& b, std::size_t n) {
  std::vector<double> right(n * n), result(n * n);  // b L; L^T (b L)
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t j = 0; j <= k; ++j) right[i * n + j] += b[i * n + k] * l[k * n + j];
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i <= k; ++i)
      for (std::size_t j = 0; j < n; ++j) result[i * n + j] += l[k * n + i] * right[k * n + j];
  return result;
}

}  // namespace detail

// m_a - m_b|^2 + tr(A + B - 2 (A B)^(1/2)), the squared Wasserstein distance of the two normal distributions. With A =
// L L^T the trace of the root is the sum of the roots of the eigenvalues of L^T B L. About 6 d^3 operations. On
// features of Inception v3 this is the FID; values on other features are comparable only with each other. It is biased
// upwards for few examples, so compare sets of one size.
// Throws BuildError if the widths differ, and DataError for values that are not finite.
// Source: Heusel et al., "GANs trained by a two time-scale update rule converge to a local Nash equilibrium", 2017.
inline double frechet_distance(const Gaussian& a, const Gaussian& b) {
  const std::size_t d = a.mean.size();
  if (b.mean.size() != d || a.covariance.size() != d * d || b.covariance.size() != d * d)
    throw rp::BuildError{"frechet_distance: the features of both must have one width, found " + std::to_string(d) + " and " +
                         std::to_string(b.mean.size())};
  detail::require_finite(a, "first");
  detail::require_finite(b, "second");
  double result = 0;
  for (std::size_t i = 0; i < d; ++i) {
    const double apart = a.mean[i] - b.mean[i];
    result += apart * apart + a.covariance[i * d + i] + b.covariance[i * d + i];
  }
  for (const double value : symmetric_eigenvalues(detail::between(detail::cholesky(a.covariance, d), b.covariance, d), d))
    result -= 2 * std::sqrt(std::max(value, 0.0));
  return result;
}

}  // namespace sngan
