// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cmath>

#include <replicator/cpu/gather.hpp>
#include <replicator/cpu/top_k.hpp>
#include <replicator/ops/elementwise.hpp>

#include "../support/differences.hpp"
#include "../support/elements.hpp"

namespace test_top_k {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

struct TopCase {
  Shape shape;
  std::int64_t axis = 0, k = 1;
};

TopCase draw_top() {
  const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
  TopCase c;
  for (auto rank = in(1, 3); rank > 0; --rank) c.shape.push_back(in(1, 6));
  c.axis = in(0, static_cast<std::int64_t>(c.shape.rank()) - 1);
  c.k = in(1, c.shape[static_cast<std::size_t>(c.axis)]);
  return c;
}

// By the definition: rank = how many come before. NaN counts as larger than every number.
template <class T>
void check_top(const TopCase& c, const Array<T>& x, int threads) {
  Graph graph;
  const auto top = top_k(input(graph, x, 0), c.k, c.axis);
  const Value wanted[] = {top.values.any().value(), top.indices.any().value()};
  const auto found = evaluate(graph, wanted, std::vector{x.any()}, {.threads = threads});
  const auto axis = static_cast<std::size_t>(c.axis);
  const auto before = [](T a, std::int64_t i, T b, std::int64_t j) {
    const double l = static_cast<double>(a), r = static_cast<double>(b);
    const double left = std::isnan(l) ? INFINITY : std::atan(l), right = std::isnan(r) ? INFINITY : std::atan(r);
    return left != right ? left > right : i < j;
  };
  std::size_t checked = 0;
  for_each_index(c.shape, [&](const std::vector<std::int64_t>& at) {
    const T own = x[offset_of({}, c.shape, at)];
    auto other = at;
    std::int64_t rank = 0;
    for (std::int64_t i = 0; i < c.shape[axis]; ++i) {
      other[axis] = i;
      rank += before(x[offset_of({}, c.shape, other)], i, own, at[axis]) ? 1 : 0;
    }
    if (rank >= c.k) return;
    other[axis] = rank;
    const auto place = offset_of({}, found[0].shape(), other);
    RC_ASSERT(found[1].template as<std::int32_t>()[static_cast<std::size_t>(place)] == at[axis]);
    const T value = found[0].template as<T>()[static_cast<std::size_t>(place)];
    RC_ASSERT((value == own || (value != value && own != own)));
    ++checked;
  });
  RC_ASSERT(checked == static_cast<std::size_t>(found[0].shape().elements()));
}

}  // namespace

TEST_CASE("top_k gives the largest in descending order with their places: lower place first among equals, NaN first") {
  REQUIRE(rc::check("every dtype", [] {
    const auto c = draw_top();
    const int threads = *rc::gen::inRange(1, 4);
    for_all_elements([&]<class T>() {
      Array<T> x{c.shape};
      PhiloxStream random{3, 5};
      for (auto& value : x) value = static_cast<T>(random.below(4));
      if constexpr (std::is_floating_point_v<T>)
        for (auto& value : x)
          if (random.below(6) == 0) value = static_cast<T>(NAN);
      check_top(c, x, threads);
    });
  }));
}

TEST_CASE("top_k along the last axis unless told") {
  Graph graph;
  const Array<float> x{{2, 4}, {1, 7, 7, 3, -INFINITY, NAN, INFINITY, NAN}};
  const auto [values, indices] = top_k(input(graph, x, 0), 3);
  CHECK(values.shape() == Shape{2, 3});
  CHECK(doubles(evaluate(indices, std::vector{x.any()})) == std::vector<double>{1, 2, 3, 1, 3, 2});
}

TEST_CASE("the gradient of the largest goes to their places, to second order") {
  REQUIRE(rc::check("x", [] {
    const auto c = draw_top();
    // Whole numbers far apart: no small step changes the order.
    Array<double> x{c.shape};
    for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((i * 7919) % 10007);
    const Function f = [&](Graph&, std::span<const AnyTensor> in) {
      const auto y = top_k(Tensor<double>{in[0]}, c.k, c.axis).values;
      return (y * y).any();
    };
    for (const int order : {1, 2}) RC_ASSERT(gradient_error(f, {x.any()}, order, 1e-2) < 1e-5);
  }));
}

TEST_CASE("no gradient flows through the places") {
  Graph graph;
  const Array<float> x{{3}, {1, 2, 3}};
  const auto t = input(graph, x, 0);
  const auto y = cast<float>(top_k(t, 2).indices);
  CHECK(doubles(evaluate(gradient(y, t), std::vector{x.any()})) == std::vector<double>{0, 0, 0});
}

TEST_CASE("top_k says what does not fit, and where") {
  Graph graph;
  const auto x = Tensor<float>{input(graph, {DType::float32, {2, 3}}, 0)};
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(top_k(x, 4), Contains("top_k at test_top_k.cpp:") &&
                                     Contains("asked for the 4 largest along axis 1 of float32[2, 3]"));
  CHECK_THROWS_WITH(top_k(x, 0), Contains("asked for the 0 largest"));
  CHECK_THROWS_WITH(top_k(x, 1, -3), Contains("top_k at test_top_k.cpp:") && Contains("asked for axis -3"));
}

}  // namespace test_top_k
