// SPDX-License-Identifier: Apache-2.0
// Operations that are written in terms of others: remainders, ceil, powers of tensors, shapes and variables as arguments.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <replicator/cpu/kernels.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/replica_context.hpp>

#include "../support/errors.hpp"
#include "../support/evaluate.hpp"

namespace test_small_forms {

using namespace replicator;
using test::error_of;
using V = std::vector<double>;

namespace {

V values(AnyTensor t) { return test::doubles(test::evaluate(t, {})); }

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

TEST_CASE("ceil is the smallest whole number that is not below") {
  Graph graph;
  const auto x = constant(graph, Array<double>{{4}, {1.5, -1.5, 2, -0.25}});
  CHECK(values(ceil(x)) == V{2, -1, 2, 0});
  CHECK(values(map([](auto a) { return ceil(a) + 1; }, x)) == V{3, 0, 3, 1});
}

TEST_CASE("a power takes an exponent for each element, with gradients for both") {
  Graph graph;
  const auto x = constant(graph, Array<double>{{3}, {2, 3, 1}}), n = constant(graph, Array<double>{{3}, {3, 2, 5}});
  CHECK(values(pow(x, n)) == V{8, 9, 1});
  CHECK(values(gradient(sum(pow(x, n)), x)) == V{12, 6, 5});
  CHECK(values(gradient(sum(pow(x, n)), n))[0] == Approx(8 * std::log(2.0)));
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
