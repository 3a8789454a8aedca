// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/cpu/matmul.hpp>
#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/linear.hpp>

#include "../support/evaluate.hpp"

namespace test_linear {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

TEST_CASE("linear takes the last axis of any batch to its features") {
  Graph graph;
  ReplicaContext replica{graph};
  const Array<double> x{{2, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  const auto y = nn::linear(replica, input(graph, x, 0), "fc", {.features = 2});
  CHECK(y.shape() == Shape{2, 1, 2, 2});
  const EvaluateOptions options{.variables = {{"fc.weight", Array<double>{{2, 3}, {1, 0, 0, 1, 1, 1}}.any()},
                                              {"fc.bias", Array<double>{{2}, {100, 200}}.any()}}};
  CHECK(doubles(evaluate(y, std::vector{x.any()}, options)) ==
        std::vector<double>{101, 206, 104, 215, 107, 224, 110, 233});
}

TEST_CASE("initialisers have the variances of their papers, for the fans of matrices and of convolutions") {
  const Shape matrix{10, 6}, kernel{8, 4, 3, 3};
  CHECK((nn::fan_in(matrix) == 6 && nn::fan_out(matrix) == 10));
  CHECK((nn::fan_in(kernel) == 36 && nn::fan_out(kernel) == 72));
  const auto glorot = nn::glorot_uniform(matrix);
  CHECK((glorot.kind == Initializer::Kind::uniform && glorot.a.real() == -glorot.b));
  CHECK(nn::glorot_uniform(matrix, 3).b == Approx(3 * glorot.b));
  CHECK(glorot.b * glorot.b / 3 == Approx(2.0 / 16));  // the variance of a uniform distribution in +-b
  CHECK(nn::he_normal(36).b * nn::he_normal(36).b == Approx(2.0 / 36));
  CHECK(nn::inverse_root_uniform(36).b == Approx(1.0 / 6));
}

TEST_CASE("weights without axes or without elements have fans and initialisers, too") {
  CHECK((nn::fan_in({}) == 1 && nn::fan_out({}) == 1));
  CHECK((nn::fan_in({5}) == 1 && nn::fan_out({5}) == 5));
  CHECK((nn::fan_in({0, 3}) == 3 && nn::fan_out({0, 3}) == 0));
  CHECK((nn::fan_in({3, 0}) == 0 && nn::fan_out({3, 0}) == 3));
  for (const Shape& shape : {Shape{0, 0}, Shape{0, 3}, Shape{3, 0}, Shape{}})
    for (const auto& initializer : {nn::glorot_uniform(shape), nn::he_normal(nn::fan_in(shape)), nn::inverse_root_uniform(nn::fan_out(shape))})
      CHECK_NOTHROW(initializer.require_valid("the weight", {DType::float32, shape}));
}

TEST_CASE("linear refuses vectors and no features") {
  Graph graph;
  ReplicaContext replica{graph};
  const Array<float> x{{3}}, rows{{2, 3}};
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(nn::linear(replica, input(graph, x, 0), "fc", {.features = 2}),
                    Contains("linear \"fc\" at test_linear.cpp:") && Contains("found float32[3] and 2 features"));
  CHECK_THROWS_WITH(nn::linear(replica, input(graph, rows, 0), "fc", {}), Contains("and 0 features"));
}

}  // namespace test_linear
