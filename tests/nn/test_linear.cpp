// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/cpu/matmul.hpp>
#include <replicator/nn/linear.hpp>

#include "../support/evaluate.hpp"

using namespace replicator;
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

TEST_CASE("linear refuses vectors and no features") {
  Graph graph;
  ReplicaContext replica{graph};
  const Array<float> x{{3}}, rows{{2, 3}};
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(nn::linear(replica, input(graph, x, 0), "fc", {.features = 2}),
                    Contains("linear \"fc\" at test_linear.cpp:") && Contains("found float32[3] and 2 features"));
  CHECK_THROWS_WITH(nn::linear(replica, input(graph, rows, 0), "fc", {}), Contains("and 0 features"));
}
