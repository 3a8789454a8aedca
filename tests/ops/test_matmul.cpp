// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <limits>
#include <span>
#include <vector>

#include <replicator/cpu/matmul.hpp>

#include "../support/differences.hpp"
#include "../support/matmul.hpp"

namespace test_matmul {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

TEST_CASE("the loops compute products of matrices as defined, batches broadcast") {
  REQUIRE(rc::check("float32, float64, int32, int64", [] {
    const auto c = draw_matmul(*rc::gen::element<std::int64_t>(5, 70));
    RC_LOG(c.text());
    const EvaluateOptions options{.threads = *rc::gen::inRange(1, 4)};
    RC_ASSERT(matmul_error<float>(c, options) < 1e-5);
    RC_ASSERT(matmul_error<double>(c, options) < 1e-13);
    RC_ASSERT(matmul_error<std::int32_t>(c, options) == 0);
    RC_ASSERT(matmul_error<std::int64_t>(c, options) == 0);
  }));
}

TEST_CASE("the loops give the same bits on any number of threads") {
  const AnyOperation op = Matmul{true, false};
  const auto a = random_array<float>({2, 1, 70, 5}, 1).any(), b = random_array<float>({3, 70, 9}, 2).any();
  const TensorType y{DType::float32, {2, 3, 5, 9}};
  const auto bits = [&](int threads) {
    const auto found = array_of(run_kernel(op, {held(a), held(b)}, {&y, 1}, {.threads = threads})[0]);
    return std::vector<std::byte>(found.bytes().begin(), found.bytes().end());
  };
  CHECK(bits(1) == bits(2));
  CHECK(bits(1) == bits(7));
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

TEST_CASE("rows of a batch times one matrix are one product, forwards and for the matrix's gradient") {
  Graph graph;
  const Array<float> x{{4, 3, 2, 5}}, w{{6, 5}};
  const auto y = matmul(input(graph, x, 0), input(graph, w, 1), {.transpose_b = true});
  CHECK(y.shape() == Shape{4, 3, 2, 6});
  CHECK(matmul_extents({false, true}, x.shape(), w.shape()).rows == 24);
  CHECK(matmul_batch({false, true}, x.shape(), w.shape()).rank == 0);
  const AnyTensor wanted[] = {graph.tensor(1)};
  const auto before = graph.nodes().size();
  (void)gradients(y, wanted, {});
  for (const auto& node : std::span{graph.nodes()}.subspan(before)) CHECK(node.kind() != "reduce");
  // Axes that both operands have are one axis of the batch.
  CHECK(matmul_batch({}, {4, 3, 2, 5}, {4, 3, 5, 6}).rank == 1);
  CHECK(matmul_batch({}, {4, 1, 2, 5}, {4, 3, 5, 6}).rank == 2);
}

TEST_CASE("products of int64 are exact where double is not, and wrap") {
  Graph graph;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(), large = (std::int64_t{1} << 53) + 1;
  const Array<std::int64_t> a{{2, 2}, {1, 0, 1, 1}}, b{{2, 2}, {large, most, -3, 1}};
  const auto y = evaluate(matmul(input(graph, a, 0), input(graph, b, 1)), std::vector{a.any(), b.any()});
  const auto found = y.as<std::int64_t>();
  CHECK(std::vector(found.begin(), found.end()) == std::vector<std::int64_t>{large, most, large - 3, std::numeric_limits<std::int64_t>::min()});
}

TEST_CASE("a product with an empty inner extent is zero") { CHECK(matmul_error<float>({{}, {2, 0}, {0, 3}}) == 0); }

TEST_CASE("a product of empty batches, or without rows, is empty") {
  CHECK(matmul_error<float>({{}, {0, 2, 3}, {1, 3, 4}}) == 0);
  CHECK(matmul_error<float>({{true, false}, {1, 3, 2}, {0, 3, 4}}) == 0);
  CHECK(matmul_error<float>({{}, {5, 0, 3}, {3, 4}}) == 0);
}

TEST_CASE("matmul says which extents do not fit, and where") {
  Graph graph;
  const auto matrix = [&](const Shape& shape) { return Tensor<float>{input(graph, {DType::float32, shape}, 0)}; };
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(
      matmul(matrix({2, 3}), matrix({4, 5})),
      Contains("matmul at test_matmul.cpp:") && Contains("a [2, 3] has 3 columns, but b [4, 5] has 4 rows"));
  CHECK_THROWS_WITH(matmul(matrix({2, 3}), matrix({3, 5}), {.transpose_a = true}),
                    Contains("a [2, 3] transposed has 2 columns, but b [3, 5] has 3 rows"));
  CHECK_THROWS_WITH(matmul(matrix({7, 2, 3}), matrix({3})),
                    Contains("found float32[7, 2, 3] and float32[3]: both must be matrices"));
  CHECK_THROWS_WITH(matmul(matrix({7, 2, 3}), matrix({6, 3, 5})),
                    Contains("found float32[7, 2, 3] and float32[6, 3, 5], whose axes before the last two"));
  const Tensor<std::uint8_t> image{input(graph, {DType::uint8, {2, 2}}, 0)};
  CHECK_THROWS_WITH(matmul(image, image), Contains("found uint8[2, 2] and uint8[2, 2]: both must be float32, float64, bfloat16, int32 or int64; cast "
                                                   "with rp::cast to one that holds the sums"));
}

}  // namespace test_matmul
