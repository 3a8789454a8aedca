// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <replicator/collectives/combine_elements.hpp>
#include <replicator/core/philox.hpp>
#include <vector>

namespace test_reduction {

namespace rc = replicator::detail::collectives;
using replicator::DType;

namespace {

template <class T>
std::vector<T> run(replicator::Reduction reduction, const std::vector<T>& left, const std::vector<T>& right) {
  std::vector<T> result(left.size() + 1, T(77));
  rc::combine(replicator::dtype_of<T>, reduction, reinterpret_cast<std::byte*>(result.data()),
              reinterpret_cast<const std::byte*>(left.data()), reinterpret_cast<const std::byte*>(right.data()),
              static_cast<std::int64_t>(left.size()));
  REQUIRE(result.back() == T(77));
  result.pop_back();
  return result;
}

template <class T>
void check_against_plain_loops() {
  replicator::PhiloxStream random{5, 6};
  for (const std::size_t n : {0u, 1u, 7u, 15u, 16u, 17u, 64u, 100u, 131u}) {
    std::vector<T> left(n), right(n), sum(n), min(n), max(n);
    for (std::size_t i = 0; i < n; ++i) {
      left[i] = static_cast<T>(random.uniform() * 100);
      right[i] = static_cast<T>(random.uniform() * 100);
      sum[i] = static_cast<T>(left[i] + right[i]);
      min[i] = left[i] < right[i] ? left[i] : right[i];
      max[i] = left[i] > right[i] ? left[i] : right[i];
    }
    CHECK(run(replicator::Reduction::sum, left, right) == sum);
    CHECK(run(replicator::Reduction::min, left, right) == min);
    CHECK(run(replicator::Reduction::max, left, right) == max);
    auto* bytes = reinterpret_cast<std::byte*>(left.data());
    rc::combine(replicator::dtype_of<T>, replicator::Reduction::sum, bytes, bytes, reinterpret_cast<std::byte*>(right.data()),
                static_cast<std::int64_t>(n));
    CHECK(left == sum);
  }
}

}  // namespace

TEST_CASE("combine equals plain loops for every dtype and length, in place too") {
  check_against_plain_loops<float>();
  check_against_plain_loops<double>();
  check_against_plain_loops<std::int32_t>();
  check_against_plain_loops<std::int64_t>();
  check_against_plain_loops<std::uint8_t>();
  check_against_plain_loops<replicator::bfloat16>();
}

TEST_CASE("every instruction level gives the same bits") {
  replicator::PhiloxStream random{1, 2};
  constexpr std::int64_t n = 1000;
  std::vector<float> left(n), right(n), plain(n), best(n);
  for (std::size_t i = 0; i < n; ++i) {
    left[i] = random.uniform() - 0.5f;
    right[i] = random.uniform() * 1e-3f;
  }
  left[3] = std::numeric_limits<float>::quiet_NaN();
  const auto bytes = [](std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const auto equal = [&] { return std::memcmp(plain.data(), best.data(), n * sizeof(float)) == 0; };
  rc::detail::combine_tiles<rc::detail::Sum, float>(bytes(plain), bytes(left), bytes(right), n);
  rc::combine(DType::float32, replicator::Reduction::sum, bytes(best), bytes(left), bytes(right), n);
  CHECK(equal());
  rc::detail::combine_tiles<rc::detail::Max, float>(bytes(plain), bytes(left), bytes(right), n);
  rc::combine(DType::float32, replicator::Reduction::max, bytes(best), bytes(left), bytes(right), n);
  CHECK(equal());
  plain = best = left;
  rc::detail::divide_tiles<float>(bytes(plain), n - 5, 7);
  rc::finish_root(DType::float32, replicator::Reduction::mean, bytes(best), n - 5, 7);
  CHECK(equal());
}

TEST_CASE("not-a-number wins over every number, from either side") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto reduction : {replicator::Reduction::min, replicator::Reduction::max}) {
    CHECK(std::isnan(run<float>(reduction, {nan}, {1})[0]));
    CHECK(std::isnan(run<float>(reduction, {1}, {nan})[0]));
  }
}

TEST_CASE("integers wrap, a mean divides once at the root") {
  CHECK(run<std::int32_t>(replicator::Reduction::sum, {std::numeric_limits<std::int32_t>::max()}, {1})[0] ==
        std::numeric_limits<std::int32_t>::min());
  std::vector<float> values{3, 7};
  rc::finish_root(DType::float32, replicator::Reduction::mean, reinterpret_cast<std::byte*>(values.data()), 2, 3);
  CHECK(values == std::vector<float>{3.0f / 3.0f, 7.0f / 3.0f});
  rc::finish_root(DType::float32, replicator::Reduction::sum, reinterpret_cast<std::byte*>(values.data()), 2, 3);
  CHECK(values[0] == 1.0f);
}

TEST_CASE("sums of bool and means of integers are refused with a way out") {
  CHECK_THROWS_WITH(rc::require_reducible(DType::boolean, replicator::Reduction::sum),
                    "sum of bool over replicas is not defined: cast to a floating type first, or take min or max");
  CHECK_THROWS_AS(rc::require_reducible(DType::int32, replicator::Reduction::mean), replicator::BuildError);
  CHECK_NOTHROW(rc::require_reducible(DType::boolean, replicator::Reduction::max));
}

}  // namespace test_reduction
