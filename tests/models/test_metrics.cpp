// SPDX-License-Identifier: Apache-2.0
// Eigenvalues and distances with closed forms.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <rapidcheck.h>

#include <replicator/core/philox.hpp>

#include "../../examples/sngan/frechet_distance.hpp"
#include "../../examples/sngan/inception_score.hpp"

namespace test_metrics {

using namespace replicator;
using namespace replicator::detail;
using namespace sngan;
using Catch::Matchers::Contains;

namespace {

constexpr double pi = 3.14159265358979323846;

std::vector<double> random_values(std::size_t count, std::uint64_t seed) {
  PhiloxStream random{seed, 0, 0};
  std::vector<double> values(count);
  for (auto& value : values) value = 2 * static_cast<double>(random.uniform()) - 1;
  return values;
}

// B B^T: [n, n] of rank at most `rank`.
std::vector<double> gram(std::size_t n, std::size_t rank, std::uint64_t seed) {
  const auto b = random_values(n * rank, seed);
  std::vector<double> result(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < rank; ++k) result[i * n + j] += b[i * rank + k] * b[j * rank + k];
  return result;
}

Gaussian diagonal(const std::vector<double>& mean, const std::vector<double>& variance) {
  const std::size_t d = mean.size();
  Gaussian result{mean, std::vector<double>(d * d)};
  for (std::size_t i = 0; i < d; ++i) result.covariance[i * d + i] = variance[i];
  return result;
}

}  // namespace

TEST_CASE("the eigenvalues of a path's matrix are 2 - 2 cos(k pi / (n + 1)), of one of ones n and zeros") {
  for (const std::size_t n : {1, 2, 3, 7, 64}) {
    std::vector<double> path(n * n), ones(n * n, 1.0);
    for (std::size_t i = 0; i < n; ++i) {
      path[i * n + i] = 2;
      if (i + 1 < n) path[i * n + i + 1] = path[(i + 1) * n + i] = -1;
    }
    const auto values = symmetric_eigenvalues(path, n);
    for (std::size_t k = 0; k < n; ++k) CHECK(values[k] == Approx(2 - 2 * std::cos(static_cast<double>(k + 1) * pi / static_cast<double>(n + 1))).margin(1e-13));
    const auto flat = symmetric_eigenvalues(ones, n);
    CHECK(flat[n - 1] == Approx(static_cast<double>(n)));
    for (std::size_t k = 0; k + 1 < n; ++k) CHECK(std::abs(flat[k]) < 1e-13 * static_cast<double>(n));
  }
  CHECK(symmetric_eigenvalues({3, 0, 0, 0, -5, 0, 0, 0, 1}, 3) == std::vector<double>{-5, 1, 3});
  CHECK(symmetric_eigenvalues(std::vector<double>(16), 4) == std::vector<double>(4));
  CHECK(symmetric_eigenvalues({}, 0).empty());
}

TEST_CASE("sum and sum of squares of the eigenvalues are those of any symmetric matrix, and a rank leaves that many of them") {
  CHECK(rc::check([] {
    const auto n = *rc::gen::inRange<std::size_t>(1, 20);
    const auto rank = *rc::gen::inRange<std::size_t>(0, n + 1);
    const auto matrix = gram(n, rank, *rc::gen::inRange<std::uint64_t>(0, 1000));
    const auto values = symmetric_eigenvalues(matrix, n);
    double trace = 0, squares = 0, sum = 0, sum_of_squares = 0;
    for (std::size_t i = 0; i < n; ++i) trace += matrix[i * n + i];
    for (const double value : matrix) squares += value * value;
    for (const double value : values) sum += value, sum_of_squares += value * value;
    RC_ASSERT(std::abs(sum - trace) <= 1e-12 * (1 + trace));
    RC_ASSERT(std::abs(sum_of_squares - squares) <= 1e-12 * (1 + squares));
    for (std::size_t i = 0; i + rank < n; ++i) RC_ASSERT(std::abs(values[i]) <= 1e-12 * (1 + trace));
  }));
}

TEST_CASE("the Frechet distance of diagonal Gaussians is the squared distance of means and of standard deviations") {
  for (const std::size_t d : {1, 2, 5, 100}) {
    auto a = random_values(d, 1), b = random_values(d, 2), v = random_values(d, 3), w = random_values(d, 4);
    double expected = 0;
    for (std::size_t i = 0; i < d; ++i) {
      v[i] = std::abs(v[i]), w[i] = i % 3 == 2 ? 0 : std::abs(w[i]);  // some features never vary
      expected += (a[i] - b[i]) * (a[i] - b[i]) + std::pow(std::sqrt(v[i]) - std::sqrt(w[i]), 2);
    }
    CHECK(frechet_distance(diagonal(a, v), diagonal(b, w)) == Approx(expected).epsilon(1e-10));
    CHECK(frechet_distance(diagonal(b, w), diagonal(a, v)) == Approx(expected).epsilon(1e-10));
  }
}

TEST_CASE("the Frechet distance is zero from itself, of scaled covariances (1 - s)^2 tr, and the same both ways, at any rank") {
  CHECK(rc::check([] {
    const auto d = *rc::gen::inRange<std::size_t>(1, 12);
    const auto rank = *rc::gen::inRange<std::size_t>(1, d + 1);
    const auto seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
    const Gaussian a{random_values(d, seed), gram(d, rank, seed)}, b{random_values(d, seed + 1), gram(d, d, seed + 1)};
    RC_ASSERT(std::abs(frechet_distance(a, a)) < 1e-6);
    Gaussian scaled = a;
    double trace = 0;
    for (auto& value : scaled.covariance) value *= 9;
    for (std::size_t i = 0; i < d; ++i) trace += a.covariance[i * d + i];
    RC_ASSERT(std::abs(frechet_distance(a, scaled) - 4 * trace) < 1e-6 * (1 + trace));
    RC_ASSERT(std::abs(frechet_distance(a, b) - frechet_distance(b, a)) < 1e-6);
  }));
}

TEST_CASE("a Gaussian is fitted by mean and unbiased covariance") {
  const auto fit = fit_gaussian(Array<float>{{3, 2}, {1, 2, 3, 2, 5, 8}});
  CHECK(fit.mean == std::vector<double>{3, 4});
  CHECK(fit.covariance == std::vector<double>{4, 6, 6, 12});
}

TEST_CASE("the inception score is C where all classes are sure and met equally often, 1 where all pictures are alike or unsure") {
  CHECK(inception_score(Array<float>{{3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}}) == Approx(3));
  CHECK(inception_score(Array<float>{{2, 2}, {1, 0, 1, 0}}) == Approx(1));
  CHECK(inception_score(Array<float>{{2, 4}, {0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f}}) == Approx(1));
  CHECK(inception_score(Array<float>{{2, 2}, {0.75f, 0.25f, 0.25f, 0.75f}}) == Approx(std::exp(0.75 * std::log(1.5) + 0.25 * std::log(0.5))));
}

TEST_CASE("metrics name what does not fit") {
  CHECK_THROWS_WITH(symmetric_eigenvalues({1, 2, 3}, 2), Contains("2 rows needs 4 values, found 3"));
  CHECK_THROWS_WITH(symmetric_eigenvalues({1, std::numeric_limits<double>::quiet_NaN(), 1, 1}, 2), Contains("nan"));
  CHECK_THROWS_WITH(fit_gaussian(Array<float>{{1, 2}}), Contains("at least two examples, found [1, 2]"));
  CHECK_THROWS_WITH(frechet_distance(diagonal({0, 0}, {1, 1}), diagonal({0}, {1})), Contains("one width, found 2 and 1"));
  CHECK_THROWS_WITH(inception_score(Array<float>{Shape{3}}), Contains("[N, C]"));
}

TEST_CASE("a network that gives NaN has no distance and no score, wherever the NaN is") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto good = fit_gaussian(Array<float>{{3, 2}, {1, 2, 3, 2, 5, 8}});
  for (const auto& values : {std::vector<float>(6, nan), {nan, 2, 3, 2, 5, 8}, {1, 2, 3, INFINITY, 5, 8}}) {
    const auto bad = fit_gaussian(Array<float>{{3, 2}, std::span<const float>{values}});
    CHECK_THROWS_AS(frechet_distance(bad, good), DataError);
    CHECK_THROWS_WITH(frechet_distance(bad, good), Contains("frechet_distance: a mean or covariance of the first features is"));
    CHECK_THROWS_WITH(frechet_distance(good, bad), Contains("of the second features"));
    CHECK_THROWS_AS(inception_score(Array<float>{{3, 2}, std::span<const float>{values}}), DataError);
  }
  CHECK_THROWS_WITH(inception_score(Array<float>{{2, 2}, {1, 0, -0.5f, 1.5f}}), Contains("example 1 has the probability -0.5"));
}

}  // namespace test_metrics
