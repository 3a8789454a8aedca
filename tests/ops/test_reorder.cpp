// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <replicator/cpu/kernels.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/ops/movement/reorder.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/sampling.hpp>

#include "../support/errors.hpp"
#include "../support/evaluate.hpp"

namespace test_reorder {

using namespace replicator;
using test::error_of;
using V = std::vector<double>;

namespace {

struct Setting {
  Graph graph;
  Tensor<float> x = constant(graph, Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6}});
  V values(AnyTensor t) const { return test::doubles(test::evaluate(t, {})); }
  // The gradient of the sum of y weighted by 1, 2, 3, ...
  V slope(Tensor<float> y) const {
    Array<float> weights{y.shape()};
    for (std::int64_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i + 1);
    return values(gradient(sum(y * constant(y.graph(), weights)), x));
  }
};

}  // namespace

TEST_CASE("flip reverses an axis, and so does its gradient") {
  const Setting s;
  CHECK(s.values(flip(s.x, 1)) == V{3, 2, 1, 6, 5, 4});
  CHECK(s.values(flip(s.x, -2)) == V{4, 5, 6, 1, 2, 3});
  CHECK(s.slope(flip(s.x, 1)) == V{3, 2, 1, 6, 5, 4});
  CHECK_THAT(error_of([&] { (void)flip(s.x, 2); }), Catch::Contains("flip at test_reorder.cpp:") && Catch::Contains("asked for axis 2 of a tensor of 2 dimensions"));
}

TEST_CASE("roll moves towards the end, around it, and back for negative shifts") {
  const Setting s;
  CHECK(s.values(roll(s.x, 1, 1)) == V{3, 1, 2, 6, 4, 5});
  CHECK(s.values(roll(s.x, -1, -1)) == V{2, 3, 1, 5, 6, 4});
  CHECK(s.values(roll(s.x, 4, 1)) == V{3, 1, 2, 6, 4, 5});
  CHECK(s.values(roll(s.x, 3, 0)) == V{4, 5, 6, 1, 2, 3});
  CHECK(s.values(roll(s.x, -6, 1)) == V{1, 2, 3, 4, 5, 6});
  CHECK(s.slope(roll(s.x, 1, 1)) == V{2, 3, 1, 5, 6, 4});
}

TEST_CASE("tril and triu keep one side of a diagonal") {
  const Setting s;
  CHECK(s.values(tril(s.x)) == V{1, 0, 0, 4, 5, 0});
  CHECK(s.values(tril(s.x, 1)) == V{1, 2, 0, 4, 5, 6});
  CHECK(s.values(triu(s.x)) == V{1, 2, 3, 0, 5, 6});
  CHECK(s.values(triu(s.x, -1)) == V{1, 2, 3, 4, 5, 6});
  CHECK(s.values(triu(s.x, 2)) == V{0, 0, 3, 0, 0, 0});
  CHECK(s.slope(tril(s.x)) == V{1, 0, 0, 4, 5, 0});
  CHECK_THAT(error_of([&] { (void)tril(sum(s.x, {0})); }), Catch::Contains("x must be [.., rows, columns], found float32[3]"));
}

TEST_CASE("take_along_axis takes an element for each index, and adds gradients there") {
  Setting s;
  const auto columns = constant(s.graph, Array<std::int32_t>{{2, 2}, {2, 0, 1, 1}});
  CHECK(s.values(take_along_axis(s.x, columns, 1)) == V{3, 1, 5, 5});
  CHECK(s.slope(take_along_axis(s.x, columns, 1)) == V{2, 0, 1, 0, 7, 0});
  const auto rows = constant(s.graph, Array<std::int64_t>{{1, 3}, {1, 0, 1}});
  CHECK(s.values(take_along_axis(s.x, rows, 0)) == V{4, 2, 6});
  CHECK_THAT(error_of([&] { (void)take_along_axis(s.x, rows, 1); }),
             Catch::Contains("take_along_axis at test_reorder.cpp:") &&
                 Catch::Contains("found float32[2, 3] and indices int64[1, 3]: all extents but that of axis 1 must be equal"));
}

TEST_CASE("an index that does not exist is refused with its place and the axis, not taken from another row") {
  for (const std::int32_t index : {3, -1, 100, std::numeric_limits<std::int32_t>::min()}) {
    Setting s;
    const auto columns = constant(s.graph, Array<std::int32_t>{{2, 2}, {0, 2, 1, index}});
    const auto text = error_of([&] { (void)s.values(take_along_axis(s.x, columns, 1)); });
    CHECK_THAT(text, Catch::EndsWith("the index " + std::to_string(index) +
                                     " at [1, 1] of the indices int32[2, 2] lies outside of axis 1 of float32[2, 3]: indices count from 0 and must be below 3"));
    CHECK_THROWS_AS(s.values(take_along_axis(s.x, columns, 1)), DataError);
    CHECK(std::any_of(s.graph.nodes().begin(), s.graph.nodes().end(), [](const auto& node) { return node.title() == "take_along_axis"; }));
    const auto rows = constant(s.graph, Array<std::int64_t>{{1, 3}, {0, index, 0}});
    CHECK_THAT(error_of([&] { (void)s.values(take_along_axis(s.x, rows, 0)); }),
               Catch::Contains("the index " + std::to_string(index) + " at [0, 1] of the indices int64[1, 3] lies outside of axis 0 of float32[2, 3]"));
  }
}

TEST_CASE("randint gives every whole number of its range, and none outside") {
  Graph graph;
  const auto values = test::doubles(test::evaluate(randint(graph, {600}, -2, 3), {}));
  for (const double number : {-2, -1, 0, 1, 2}) CHECK(std::count(values.begin(), values.end(), number) > 80);
  CHECK(*std::min_element(values.begin(), values.end()) == -2);
  CHECK(*std::max_element(values.begin(), values.end()) == 2);
  const auto large = test::doubles(test::evaluate(randint<std::int64_t>(graph, {64}, std::int64_t{1} << 40, std::int64_t{1} << 41), {}));
  for (const double number : large) CHECK((number >= 0x1p40 && number < 0x1p41));
  CHECK_THAT(error_of([&] { (void)randint(graph, {1}, 3, 3); }), Catch::Contains("randint at test_reorder.cpp:") && Catch::Contains("from 3 to before 3"));
}

TEST_CASE("a permutation has every number once, and another order for each node") {
  Graph graph;
  auto one = test::doubles(test::evaluate(permutation(graph, 50), {}));
  const auto other = test::doubles(test::evaluate(permutation(graph, 50), {}));
  CHECK(one != other);
  std::sort(one.begin(), one.end());
  for (int i = 0; i < 50; ++i) CHECK(one[static_cast<std::size_t>(i)] == i);
}

}  // namespace test_reorder
