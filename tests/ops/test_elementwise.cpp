// SPDX-License-Identifier: Apache-2.0
// Operators on tensors. (Values of maps: tests/cpu/test_map.cpp.)
#include <catch2/catch.hpp>

#include <atomic>
#include <cmath>
#include <sstream>
#include <vector>

#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/movement/slice.hpp>
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

Tensor<std::int32_t> halved(Tensor<std::int32_t> x) {
  return map([](auto label) { return label * 0.5; }, x);
}

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

TEST_CASE("operations on bits take the bits of integers beyond int64") {
  Graph graph;
  const Array<std::int64_t> x{{2}, {1, -1}};
  const Array<std::int32_t> y{{2}, {1, -1}};
  const Tensor<std::int64_t> a{input(graph, x.any().type(), 0)};
  const Tensor<std::int32_t> b{input(graph, y.any().type(), 1)};
  const auto inputs = std::vector{x.any(), y.any()};
  constexpr std::uint64_t all = ~0ull, highest = 1ull << 63;
  CHECK(doubles(evaluate(a ^ all, inputs)) == Values{-2, 0});
  CHECK(doubles(evaluate(all & a, inputs)) == Values{1, -1});
  CHECK(doubles(evaluate(a | highest, inputs)) == Values{-0x1p63 + 1, -1});
  CHECK(doubles(evaluate(b ^ all, inputs)) == Values{-2, 0});
  CHECK(doubles(evaluate(map([](auto v) { return v ^ all; }, a), inputs)) == Values{-2, 0});
  CHECK_THROWS_WITH(map([](auto v) { return v + all; }, a), Catch::Contains("the number 1.84467e+19, which is of a floating type or beyond int64"));
  CHECK_THROWS_WITH(a + all, Catch::Contains("the number 1.84467e+19, which is of a floating type or beyond int64"));
  CHECK_THROWS_WITH(a ^ 0.5, Catch::Contains("the number 0.5, which is of a floating type"));
}

TEST_CASE("enumerators and atomics stand beside tensors as their numbers") {
  enum Size {
    two = 2
  };
  Pair of{{{2}, {3, 5}}, {{1}, {2}}};
  const std::atomic<float> half{0.5f};
  const std::atomic<std::int64_t> large{(std::int64_t{1} << 62) + 1};
  CHECK(of(two * of.a + half) == Values{6.5, 10.5});
  CHECK(of(maximum(of.a, large)) == Values{0x1p62, 0x1p62});
  CHECK(Number{large}.as<std::int64_t>() == large);
  of.a *= half;
  CHECK(of(of.a) == Values{1.5, 2.5});
}

TEST_CASE("a number with a point, or one that is too large, is refused beside integers with the line and a cure") {
  Graph graph{1, 2};
  const Tensor<std::uint8_t> pixels{input(graph, {DType::uint8, {2}}, 0)};
  const Tensor<std::int32_t> labels{input(graph, {DType::int32, {2}}, 1)};
  const Tensor<std::int64_t> ids{input(graph, {DType::int64, {2}}, 2)};
  const Tensor<bool> seen{input(graph, {DType::boolean, {2}}, 3)};
  const auto divide = [&] { return pixels / 255.0f; };
  CHECK_THROWS_WITH(divide(), "replica 1: operator/ at test_elementwise.cpp:" + std::to_string(__LINE__ - 1) +
                                  ": found uint8[2] and the number 255, which is of a floating type or beyond int64: write a whole number without a point, or "
                                  "rp::cast<float> the tensor first");
  const std::string floating = "which is of a floating type", large = "which int32 cannot hold: rp::cast the tensor to a larger type first";
  using Catch::Contains;
  CHECK_THROWS_WITH(labels * 0.5, Contains("operator* at ") && Contains("int32[2] and the number 0.5, " + floating));
  CHECK_THROWS_WITH(0.5 - ids, Contains("operator- at ") && Contains(floating));
  CHECK_THROWS_WITH(labels == 0.5, Contains("operator== at ") && Contains(floating));
  CHECK_THROWS_WITH(1.0 < ids, Contains("operator< at ") && Contains(floating));
  CHECK_THROWS_WITH(seen * 0.5, Contains("bool[2] and the number 0.5, " + floating));
  CHECK_THROWS_WITH(labels + 3000000000, Contains("int32[2] and the number 3000000000, " + large));
  CHECK_THROWS_WITH(pixels - 256, Contains("which uint8 cannot hold"));
  CHECK_THROWS_WITH(labels % 2.0, Contains("operator% at ") && Contains(floating));
  CHECK_THROWS_WITH(maximum(labels, 0.5), Contains("maximum at ") && Contains(floating));
  CHECK_THROWS_WITH(minimum(labels, 0.5), Contains("minimum at ") && Contains(floating));
  CHECK_THROWS_WITH(clamp(labels, 0, 2.5), Contains("clamp at ") && Contains(floating));
  CHECK_THROWS_WITH(clamp(pixels, 0, 300), Contains("clamp at ") && Contains("which uint8 cannot hold"));
  CHECK_THROWS_WITH(select(seen, labels, 0.5), Contains("select at ") && Contains(floating));
  CHECK_THROWS_WITH(select(seen, 0.5, labels), Contains("select at ") && Contains(floating));
  auto sum = labels;
  CHECK_THROWS_WITH(sum += 0.5, Contains("operator+= at ") && Contains(floating));
  const auto halves = [&] { return halved(labels); };
  CHECK_THROWS_WITH(halves(), Contains("map at test_elementwise.cpp:") && Contains("the functor works on int32, and has the number 0.5, " + floating));
  CHECK_NOTHROW(labels * 2 + (ids + 3000000000).shape()[0]);
  CHECK_NOTHROW(pixels & ~1);
  CHECK_NOTHROW(map([](auto label) { return round(label & 0xffff0000u); }, labels));
  CHECK_NOTHROW(seen == true);
}

TEST_CASE("round gives the nearest whole number, and of two the even one, in maps too") {
  const Pair of{{{9}, {-1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 2.6f, -2.4f, 8388609, 4194304.5f}}, {{3}, {NAN, INFINITY, -INFINITY}}};
  CHECK(of(round(of.a)) == Values{-2, 0, 0, 2, 2, 3, -2, 8388609, 4194304});
  CHECK(of(map([](auto x) { return round(x * 2); }, of.a))[2] == 1);
  const auto special = of(round(of.b));
  CHECK((std::isnan(special[0]) && special[1] == INFINITY && special[2] == -INFINITY));
  CHECK(of(gradient(sum(round(of.a)), of.a)) == Values(9, 0));
}

TEMPLATE_TEST_CASE("what is rounded to 0 keeps its sign, in every lane", "", float, double, bfloat16) {
  constexpr std::int64_t n = 37;  // whole vectors and a tail
  Array<TestType> values{{n}};
  const double cycle[] = {-0.3, -0.5, -0.0, 0.3, 0.5, 0.0};
  for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<TestType>(cycle[i % 6]);
  Graph graph;
  const auto x = input(graph, values, 0);
  for (const AnyTensor y : {AnyTensor{round(x)}, AnyTensor{map([](auto v) { return round(v); }, x)}}) {
    const auto found = doubles(evaluate(y, std::vector{values.any()}));
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i] == 0);
      CHECK(std::signbit(found[i]) == (i % 6 < 3));
    }
  }
}

TEST_CASE("clamp keeps values between two numbers, and passes the gradient where it kept one") {
  const Pair of{{{4}, {-3, 0.5f, 7, NAN}}, {{1}, {0}}};
  const auto kept = of(clamp(of.a, -1, 2));
  CHECK((kept[0] == -1 && kept[1] == 0.5 && kept[2] == 2 && std::isnan(kept[3])));
  CHECK(of(gradient(sum(clamp(slice(of.a, {0}, {3}), -1, 2)), of.a)) == Values{0, 1, 0, 0});
}

TEST_CASE("tensors and shapes print what is known of them") {
  Graph graph;
  std::ostringstream out;
  out << Tensor<float>{input(graph, {DType::float32, {4, 2}}, 0)} << ' ' << Shape{3};
  CHECK(out.str() == "float32[4, 2] [3]");
}

}  // namespace test_elementwise
