// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cstring>

#include <replicator/cpu/cumulative_sum.hpp>

#include "../support/differences.hpp"
#include "../support/elements.hpp"

namespace test_cumulative_sum {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

struct SumCase {
  Shape shape;
  std::int64_t axis = 0;
  CumulativeSumOptions options;
};

SumCase draw_sum() {
  const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
  SumCase c;
  for (auto rank = in(1, 3); rank > 0; --rank) c.shape.push_back(in(0, 5));
  if (in(0, 3) == 0) c.shape.push_back(in(15, 40));
  c.axis = in(0, static_cast<std::int64_t>(c.shape.rank()) - 1);
  c.options = {in(0, 1) == 1, in(0, 1) == 1};
  return c;
}

// By the definition, in the order of the additions.
template <class T>
Array<T> summed(const SumCase& c, const Array<T>& x) {
  Array<T> y{c.shape};
  const auto axis = static_cast<std::size_t>(c.axis);
  for_each_index(c.shape, [&](const std::vector<std::int64_t>& at) {
    const std::int64_t extent = c.shape[axis], own = at[axis];
    const std::int64_t first = c.options.reverse ? extent - 1 : 0, step = c.options.reverse ? -1 : 1;
    T sum{};
    for (std::int64_t i = first; i != own + step; i += step) {
      auto from = at;
      from[axis] = i;
      if (i != own || !c.options.exclusive)
        sum = i == first ? x[offset_of({}, c.shape, from)] : static_cast<T>(sum + x[offset_of({}, c.shape, from)]);
    }
    y[offset_of({}, c.shape, at)] = sum;
  });
  return y;
}

}  // namespace

TEST_CASE("cumulative sums have the bits of a plain loop along any axis, on any number of threads") {
  REQUIRE(rc::check("float32, float64, int32, int64", [] {
    const auto c = draw_sum();
    const int threads = *rc::gen::inRange(1, 4);
    for_wide_elements([&]<class T>() {
      const auto x = random_array<T>(c.shape, 1), expected = summed(c, x);
      Graph graph;
      const auto found =
          evaluate(cumulative_sum(input(graph, x, 0), c.axis, c.options), std::vector{x.any()}, {.threads = threads});
      RC_ASSERT(found.size_bytes() == expected.any().size_bytes());
      RC_ASSERT(found.size_bytes() == 0 || std::memcmp(found.data(), expected.data(), found.size_bytes()) == 0);
    });
  }));
}

TEST_CASE("the gradients of cumulative sums agree with differences to second order") {
  REQUIRE(rc::check("x", [] {
    const auto c = draw_sum();
    const Function f = [&](Graph&, std::span<const AnyTensor> in) {
      const auto y = cumulative_sum(Tensor<double>{in[0]}, c.axis, c.options);
      return (y * y).any();
    };
    for (const int order : {1, 2}) RC_ASSERT(gradient_error(f, {random_array<double>(c.shape, 1).any()}, order) < 1e-7);
  }));
}

TEST_CASE("cumulative sums forwards and backwards, with and without the own element") {
  Graph graph;
  const Array<std::int32_t> x{{4}, {1, 2, 3, 4}};
  const auto t = input(graph, x, 0);
  const auto values = [&](CumulativeSumOptions options) {
    return doubles(evaluate(cumulative_sum(t, -1, options), std::vector{x.any()}));
  };
  CHECK(values({}) == std::vector<double>{1, 3, 6, 10});
  CHECK(values({.exclusive = true}) == std::vector<double>{0, 1, 3, 6});
  CHECK(values({.reverse = true}) == std::vector<double>{10, 9, 7, 4});
  CHECK(values({.exclusive = true, .reverse = true}) == std::vector<double>{9, 7, 4, 0});
}

TEST_CASE("cumulative_sum says what does not fit, and where") {
  Graph graph;
  const auto x = Tensor<float>{input(graph, {DType::float32, {2, 3}}, 0)};
  const auto flags = Tensor<bool>{input(graph, {DType::boolean, {2}}, 1)};
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(cumulative_sum(x, 2), Contains("cumulative_sum at test_cumulative_sum.cpp:") &&
                                              Contains("asked for axis 2 of a tensor of 2 dimensions"));
  CHECK_THROWS_WITH(cumulative_sum(flags, 0), Contains("cumulative_sum at test_cumulative_sum.cpp:") &&
                                                  Contains("found bool[2], whose sums do not fit"));
}

}  // namespace test_cumulative_sum
