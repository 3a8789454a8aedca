// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <replicator/cpu/matmul.hpp>
#include <replicator/cpu/onednn/onednn_matmul.hpp>

#include "../support/matmul.hpp"

namespace test_onednn_matmul {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

TEST_CASE("oneDNN computes products of matrices as defined, transposed and in batches") {
  REQUIRE(rc::check("float32", [] {
    const auto c = draw_matmul(70);
    RC_LOG(c.text());
    RC_ASSERT(matmul_error<float>(c, {.highest = KernelTier::library}) < 1e-5);
  }));
}

TEST_CASE("large products are as defined, and those that are just small enough for a plain call") {
  for (const std::int64_t depth : {64, 65})
    for (const bool a : {false, true})
      for (const bool b : {false, true}) {
        const Shape left = a ? Shape{depth, 128} : Shape{128, depth}, right = b ? Shape{128, depth} : Shape{depth, 128};
        CHECK(matmul_error<float>({{a, b}, left, right}, {.highest = KernelTier::library}) < 1e-5);
      }
}

TEST_CASE("a product made for two threads is as defined") {
  CHECK(matmul_error<float>({{false, true}, {3, 40, 50}, {3, 70, 50}}, {.highest = KernelTier::library, .threads = 2}) <
        1e-5);
}

TEST_CASE("oneDNN takes float32 products and leaves float64 and empty ones to the loops") {
  const AnyOperation op = Matmul{};
  const auto taken = [&](DType dtype, std::int64_t depth) {
    const TensorType in[] = {{dtype, {2, depth}}, {dtype, {depth, 3}}}, out[] = {{dtype, {2, 3}}};
    const Layout offered[2];
    return cpu::onednn::make_matmul({op, in, out, offered, 1}) != nullptr;
  };
  CHECK(taken(DType::float32, 4));
  CHECK_FALSE(taken(DType::float32, 0));
  CHECK_FALSE(taken(DType::float64, 4));
  CHECK_FALSE(taken(DType::int32, 4));
  CHECK(matmul_error<double>({{}, {2, 4}, {4, 3}}, {.highest = KernelTier::library}) < 1e-13);
}

}  // namespace test_onednn_matmul
