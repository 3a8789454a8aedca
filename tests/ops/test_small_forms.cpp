// SPDX-License-Identifier: Apache-2.0
// Operations that are written in terms of others: remainders, ceil, powers of tensors, shapes and variables as arguments.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <replicator/cpu/kernels.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/replica_context.hpp>

#include "../support/errors.hpp"
#include "../support/evaluate.hpp"
#include "../support/run_graph.hpp"

namespace test_small_forms {

using namespace replicator;
using test::error_of;
using V = std::vector<double>;

namespace {

V values(AnyTensor t) { return test::doubles(test::evaluate(t, {})); }

// By the kernels, not by an interpreter: that computes in double.
V computed(AnyTensor t) {
  Graph graph = t.graph();
  graph.results() = {t.value()};
  return test::doubles(test::run_graph(graph, {})[0]);
}

}  // namespace

TEST_CASE("the remainder has the sign of the first operand") {
  Graph graph;
  const auto a = constant(graph, Array<std::int32_t>{{6}, {7, -7, 7, -7, 5, 6}}), b = constant(graph, Array<std::int32_t>{{6}, {3, 3, -3, -3, 7, 6}});
  const V expected{1, -1, 1, -1, 5, 0};
  CHECK(values(a % b) == expected);
  CHECK(values(map([](auto x, auto y) { return x % y; }, a, b)) == expected);
  CHECK(values(a % 4) == V{3, -3, 3, -3, 1, 2});
  CHECK(values(20 % b) == V{2, 2, 2, 2, 6, 2});
  CHECK(values(map([](auto x) { return x % 4; }, a)) == V{3, -3, 3, -3, 1, 2});
  const auto bytes = constant(graph, Array<std::uint8_t>{{2}, {255, 10}});
  CHECK(values(bytes % std::uint8_t{16}) == V{15, 10});
  CHECK_THAT(error_of([&] { (void)map([](auto x) { return x % 4; }, constant(graph, Array<float>{{1}, {3}})); }),
             Catch::StartsWith("map at test_small_forms.cpp:") && Catch::EndsWith("% takes integers, but the functor works on float32: write a - b * floor(a / b)"));
}

TEST_CASE("operations on bits are those of C++, for tensors and in a functor, with a number on either side") {
  Graph graph;
  const auto a = constant(graph, Array<std::int32_t>{{4}, {12, -1, 7, 1 << 30}}), b = constant(graph, Array<std::int32_t>{{4}, {10, 6, 0, 3}});
  CHECK(computed(a & b) == V{8, 6, 0, 0});
  CHECK(computed(a | b) == V{14, -1, 7, (1 << 30) + 3});
  CHECK(computed(a ^ b) == V{6, -7, 7, (1 << 30) + 3});
  CHECK(computed(~a) == V{-13, 0, -8, -(1 << 30) - 1});
  CHECK(computed(a << 2) == V{48, -4, 28, 0});
  CHECK(computed(a >> 2) == V{3, -1, 1, 1 << 28});
  CHECK(computed(1 << b) == V{1024, 64, 1, 8});
  CHECK(computed(map([](auto x, auto y) { return (x & y) + 2 * (x | 1) - 3 * (6 ^ y) + (~x >> 1) + (1 << y); }, a, b)) ==
        computed((a & b) + 2 * (a | 1) - 3 * (6 ^ b) + (~a >> 1) + (1 << b)));
  const auto wide = constant(graph, Array<std::int64_t>{{2}, {std::int64_t{1} << 40, -5}});
  CHECK(computed(wide >> std::int64_t{38}) == V{4, -1});
  CHECK(computed(constant(graph, Array<std::int64_t>{{1}, {3}}) << std::int64_t{50}) == V{3 * 0x1p50});
}

TEST_CASE("uint8 keeps its 8 bits") {
  Graph graph;
  const auto x = constant(graph, Array<std::uint8_t>{{3}, {0, 5, 200}});
  CHECK(computed(~x) == V{255, 250, 55});
  CHECK(computed(x << std::uint8_t{1}) == V{0, 10, 144});
  CHECK(computed(x << std::uint8_t{8}) == V{0, 0, 0});
  CHECK(computed(x >> std::uint8_t{3}) == V{0, 0, 25});
  CHECK(computed(x >> std::uint8_t{40}) == V{0, 0, 0});
}

TEST_CASE("a shift by a negative number, or by all bits and more, leaves no bit") {
  Graph graph;
  const auto by = constant(graph, Array<std::int32_t>{{6}, {-1, 31, 32, 33, 64, std::numeric_limits<std::int32_t>::min()}});
  CHECK(computed(1 << by) == V{0, -0x1p31, 0, 0, 0, 0});
  CHECK(computed(5 >> by) == V{0, 0, 0, 0, 0, 0});
  CHECK(computed(-5 >> by) == V{-1, -1, -1, -1, -1, -1});
  const auto far = constant(graph, Array<std::int64_t>{{4}, {-1, 63, 64, std::int64_t{1} << 33}});
  CHECK(computed(std::int64_t{1} << far) == V{0, -0x1p63, 0, 0});
  CHECK(computed(std::int64_t{-9} >> far) == V{-1, -1, -1, -1});
}

TEST_CASE("bits of floating numbers are refused") {
  Graph graph;
  const auto x = constant(graph, Array<float>{{1}, {3}});
  const auto refused = [&](auto f) { return error_of([&] { (void)map(f, x); }); };
  const std::string mend = " takes integers, but the functor works on float32: cast the tensors to int32 or int64 first";
  for (const auto& [text, sign] : {std::pair{refused([](auto a) { return a & 1; }), "&"}, {refused([](auto a) { return 1 | a; }), "|"}, {refused([](auto a) { return a ^ a; }), "^"}, {refused([](auto a) { return a << 2; }), "<<"}, {refused([](auto a) { return a >> 2; }), ">>"}, {refused([](auto a) { return ~a; }), "~"}})
    CHECK_THAT(text, Catch::StartsWith("map at test_small_forms.cpp:") && Catch::EndsWith(": " + (sign + mend)));
}

TEST_CASE("ceil is the smallest whole number that is not below") {
  Graph graph;
  const auto x = constant(graph, Array<double>{{4}, {1.5, -1.5, 2, -0.25}});
  CHECK(values(ceil(x)) == V{2, -1, 2, 0});
  CHECK(values(map([](auto a) { return ceil(a) + 1; }, x)) == V{3, 0, 3, 1});
}

TEST_CASE("a power takes tensors as its base, its exponent or both, with gradients") {
  Graph graph;
  const auto x = constant(graph, Array<double>{{3}, {2, 3, 1}}), n = constant(graph, Array<double>{{3}, {3, 2, 5}});
  CHECK(values(pow(x, n)) == V{8, 9, 1});
  CHECK(values(gradient(sum(pow(x, n)), x)) == V{12, 6, 5});
  CHECK(values(gradient(sum(pow(x, n)), n))[0] == Approx(8 * std::log(2.0)));
  CHECK(values(pow(2, n)) == V{8, 4, 32});
  CHECK(values(map([](auto b) { return pow(2, b); }, n)) == V{8, 4, 32});
  CHECK(values(gradient(sum(pow(2, n)), n))[0] == Approx(8 * std::log(2.0)));
}

TEST_CASE("minimum and maximum take a number on either side") {
  Graph graph;
  const auto x = constant(graph, Array<float>{{4}, {-2, 0, 3, std::numeric_limits<float>::quiet_NaN()}});
  for (const Tensor<float>& y : std::vector<Tensor<float>>{maximum(0, x), maximum(x, 0), map([](auto a) { return max(0, a); }, x)}) {
    const auto result = computed(y), slope = values(gradient(sum(y), x));
    CHECK(V(result.begin(), result.end() - 1) == V{0, 0, 3});
    CHECK(std::isnan(result[3]));  // of the tensor, so it stays
    CHECK(V(slope.begin(), slope.end() - 1) == V{0, 1, 1});
  }
  for (const Tensor<float>& y : std::vector<Tensor<float>>{minimum(0, x), minimum(x, 0), map([](auto a) { return min(0, a); }, x)}) {
    const auto result = computed(y), slope = values(gradient(sum(y), x));
    CHECK(V(result.begin(), result.end() - 1) == V{-2, 0, 0});
    CHECK(std::isnan(result[3]));
    CHECK(V(slope.begin(), slope.end() - 1) == V{1, 1, 0});
  }
}

TEST_CASE("clamp refuses bounds in the wrong order, and NaN") {
  Graph graph;
  const auto x = constant(graph, Array<float>{{2}, {-5, 5}});
  constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(values(clamp(x, 1, 1)) == V{1, 1});
  CHECK(values(clamp(x, 0, infinity)) == V{0, 5});
  CHECK_THAT(error_of([&] { (void)clamp(x, 1, 0); }),
             Catch::Contains("replica 0: clamp at test_small_forms.cpp:") && Catch::Contains("the bounds are 1 and 0: both must be numbers, the lower one first"));
  CHECK_THAT(error_of([&] { (void)clamp(x, nan, 0); }), Catch::Contains("the lower one first"));
}

TEST_CASE("transpose without axes reverses them") {
  Graph graph;
  const auto x = constant(graph, Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6}});
  CHECK(transpose(x).shape() == Shape{3, 2});
  CHECK(values(transpose(x)) == V{1, 4, 2, 5, 3, 6});
  CHECK(values(transpose(reshape(x, {1, 2, 3}))) == values(transpose(reshape(x, {1, 2, 3}), {2, 1, 0})));
}

TEST_CASE("a constant of a number is a scalar of its type") {
  Graph graph;
  CHECK(values(constant(graph, 2.5f)) == V{2.5});
  CHECK(constant(graph, 2.5).any().type() == TensorType{DType::float64, {}});
  CHECK(constant(graph, 2).any().type() == TensorType{DType::int32, {}});
}

TEST_CASE("reshape takes the shape of another tensor") {
  Graph graph;
  const auto x = constant(graph, Array<float>{{4}, {1, 2, 3, 4}}), like = constant(graph, Array<float>{{2, 2}});
  CHECK(reshape(x, like.shape()).shape() == Shape{2, 2});
  CHECK(reshape(x, {2, -1}).shape() == Shape{2, 2});
  CHECK_THAT(error_of([&] { (void)reshape(x, Shape{3}); }), Catch::Contains("reshape at test_small_forms.cpp:"));
}

TEST_CASE("matmul takes variables on either side") {
  Graph graph;
  ReplicaContext replica{graph};
  const auto w = replica.variable<float>("w", {2, 2}, Initializer::zeros());
  const auto x = constant(graph, Array<float>{{1, 2}, {1, 10}});
  const test::EvaluateOptions options{.variables = {{"w", Array<float>{{2, 2}, {1, 2, 3, 4}}.any()}}};
  const auto given = [&](AnyTensor t) { return test::doubles(test::evaluate(t, {}, options)); };
  CHECK(given(matmul(x, w)) == V{31, 42});
  CHECK(given(matmul(x, w, {.transpose_b = true})) == V{21, 43});
  CHECK(given(matmul(w, x, {.transpose_b = true})) == V{21, 43});
}

}  // namespace test_small_forms
