// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <rapidcheck.h>

#include <replicator/cpu/matmul.hpp>

#include "../support/differences.hpp"
#include "../support/matmul.hpp"

using namespace replicator;
using namespace replicator::test;

TEST_CASE("the loops compute products of matrices as defined") {
  REQUIRE(rc::check("float32, float64, int32", [] {
    const auto c = draw_matmul(70);
    RC_LOG(c.text());
    RC_ASSERT(matmul_error<float>(c) < 1e-5);
    RC_ASSERT(matmul_error<double>(c) < 1e-13);
    RC_ASSERT(matmul_error<std::int32_t>(c) == 0);
  }));
}

TEST_CASE("the gradients of products agree with differences to second order") {
  REQUIRE(rc::check("a and b", [] {
    const auto c = draw_matmul(5);
    RC_LOG(c.text());
    const Function f = [&](Graph& graph, std::span<const AnyTensor> in) {
      return compute(graph, c.op, {in[0], in[1]}, {});
    };
    const std::vector<AnyArray> at{random_array<double>(c.a, 1).any(), random_array<double>(c.b, 2).any()};
    RC_ASSERT(gradient_error(f, at, 1) < 1e-8);
    RC_ASSERT(gradient_error(f, at, 2) < 1e-8);
  }));
}

TEST_CASE("a product with an empty inner extent is zero") { CHECK(matmul_error<float>({{}, {2, 0}, {0, 3}}) == 0); }

TEST_CASE("matmul says which extents do not fit, and where") {
  Graph graph;
  const auto matrix = [&](const Shape& shape) { return Tensor<float>{input(graph, {DType::float32, shape}, 0)}; };
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(
      matmul(matrix({2, 3}), matrix({4, 5})),
      Contains("matmul at test_matmul.cpp:") && Contains("a [2, 3] has 3 columns, but b [4, 5] has 4 rows"));
  CHECK_THROWS_WITH(matmul(matrix({2, 3}), matrix({3, 5}), {.transpose_a = true}),
                    Contains("a [2, 3] transposed has 2 columns, but b [3, 5] has 3 rows"));
  CHECK_THROWS_WITH(matmul(matrix({7, 2, 3}), matrix({3, 5})), Contains("found float32[7, 2, 3] and float32[3, 5]"));
  CHECK_THROWS_WITH(matmul(matrix({7, 2, 3}), matrix({6, 3, 5})), Contains("a batch of 7, b [6, 3, 5] of 6"));
}
