// SPDX-License-Identifier: Apache-2.0
// Operators on tensors. (Values of maps: tests/cpu/test_map.cpp.)
#include <catch2/catch.hpp>

#include <cmath>
#include <sstream>
#include <vector>

#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>

#include "../support/differences.hpp"

namespace test_elementwise {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Values = std::vector<double>;

namespace {

// a and b as the replica has them, and what is computed of them.
struct Pair {
  Graph graph;
  Array<float> x, y;
  Tensor<float> a, b;

  Pair(Array<float> first, Array<float> second) : x{std::move(first)}, y{std::move(second)}, a{input(graph, x, 0)}, b{input(graph, y, 1)} {}
  Values operator()(AnyTensor wanted) const { return doubles(evaluate(wanted, std::vector{x.any(), y.any()})); }
};

}  // namespace

TEST_CASE("comparisons give bools, broadcast, and are false of NaN but for !=") {
  const Pair of{{{4}, {1, 2, NAN, -0.0f}}, {{4}, {2, 2, 2, 0}}};
  CHECK(of(of.a < of.b) == Values{1, 0, 0, 0});
  CHECK(of(of.a <= of.b) == Values{1, 1, 0, 1});
  CHECK(of(of.a > of.b) == Values{0, 0, 0, 0});
  CHECK(of(of.a >= of.b) == Values{0, 1, 0, 1});
  CHECK(of(of.a == of.b) == Values{0, 1, 0, 1});
  CHECK(of(of.a != of.b) == Values{1, 0, 1, 0});
  CHECK((of.a < of.b).any().dtype() == DType::boolean);
}

TEST_CASE("numbers stand on either side of a comparison") {
  const Pair of{{{3}, {1, 2, 3}}, {{1}, {0}}};
  CHECK(of(of.a < 2) == Values{1, 0, 0});
  CHECK(of(2 < of.a) == Values{0, 0, 1});
  CHECK(of(of.a <= 2) == Values{1, 1, 0});
  CHECK(of(2 <= of.a) == Values{0, 1, 1});
  CHECK(of(of.a > 2) == of(2 < of.a));
  CHECK(of(2 > of.a) == of(of.a < 2));
  CHECK(of(of.a >= 2) == of(2 <= of.a));
  CHECK(of(2 >= of.a) == of(of.a <= 2));
  CHECK(of(of.a == 2) == Values{0, 1, 0});
  CHECK(of(2 == of.a) == Values{0, 1, 0});
  CHECK(of(of.a != 2) == Values{1, 0, 1});
  CHECK(of(2 != of.a) == Values{1, 0, 1});
}

TEST_CASE("bools are joined and turned round") {
  const Pair of{{{4}, {1, 2, 3, 4}}, {{4}, {1, 1, 4, 4}}};
  CHECK(of(of.a > 1 && of.a < 4) == Values{0, 1, 1, 0});
  CHECK(of(of.a == 1 || of.a == of.b) == Values{1, 0, 0, 1});
  CHECK(of(!(of.a == of.b)) == Values{0, 1, 1, 0});
}

TEST_CASE("x += y makes x the sum, whatever it was") {
  Pair of{{{2}, {3, 5}}, {{1}, {2}}};
  auto z = of.a;
  z += of.b, z *= 2, z -= 1, z /= of.b;
  CHECK(of(z) == Values{4.5, 6.5});
  CHECK(of(of.a) == Values{3, 5});
  z *= of.a, z -= of.b, z += 0.5, z /= 2;
  CHECK(of(z) == Values{6, 15.5});
  auto mapped = map([](auto v) { return 2 * v; }, of.a);
  mapped += of.b;
  mapped = relu(mapped - 10);
  CHECK(of(mapped) == Values{0, 2});
}

TEST_CASE("select, minimum and maximum take a number on one side") {
  const Pair of{{{3}, {-1, 2, 7}}, {{3}, {1, 1, 1}}};
  CHECK(of(select(of.a > 0, of.a, 0)) == Values{0, 2, 7});
  CHECK(of(select(of.a > 0, -INFINITY, of.a)) == Values{-1, -INFINITY, -INFINITY});
  CHECK(of(minimum(maximum(of.a, 0), 6)) == Values{0, 2, 6});
  CHECK(of(gradient(sum(select(of.a > 0, 3 * of.a, 0)), of.a)) == Values{0, 3, 3});
  CHECK(of(gradient(sum(maximum(of.a, 0) * 2), of.a)) == Values{0, 2, 2});
}

TEST_CASE("map of tensors of several types has the type of the first, and gradients for the floating ones") {
  Graph graph;
  const Array<float> x{{3}, {1, 2, 3}};
  const Array<std::int32_t> labels{{3}, {0, 1, 1}};
  const auto in = input(graph, x, 0);
  const auto y = map([](auto v, auto l) { return select(l != 0, v * v, 0); }, in, input(graph, labels, 1));
  const auto inputs = std::vector{x.any(), labels.any()};
  CHECK(y.any().dtype() == DType::float32);
  CHECK(doubles(evaluate(y, inputs)) == Values{0, 4, 9});
  CHECK(doubles(evaluate(gradient(sum(y), in), inputs)) == Values{0, 4, 6});
}

TEST_CASE("a comparison of shapes that do not broadcast names both and the line, as operators do") {
  Graph graph{1, 2};
  const Tensor<float> a{input(graph, {DType::float32, {4, 2}}, 0)}, b{input(graph, {DType::float32, {3}}, 1)};
  const auto compare = [&] { return a < b; };
  const std::string line = std::to_string(__LINE__ - 1);
  CHECK_THROWS_WITH(compare(), "replica 1: operator< at test_elementwise.cpp:" + line +
                                   ": found float32[4, 2] and float32[3], whose shapes cannot be broadcast together: make the extents equal or 1");
  auto z = a;
  CHECK_THROWS_WITH(z += b, Catch::Contains("test_elementwise.cpp:" + std::to_string(__LINE__)));
  CHECK_THROWS_WITH(a > 0 && b > 0, Catch::Contains("test_elementwise.cpp:" + std::to_string(__LINE__)));
}

TEST_CASE("tensors and shapes print what is known of them") {
  Graph graph;
  std::ostringstream out;
  out << Tensor<float>{input(graph, {DType::float32, {4, 2}}, 0)} << ' ' << Shape{3};
  CHECK(out.str() == "float32[4, 2] [3]");
}

}  // namespace test_elementwise
