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

// rows x depth times depth x columns
MatmulCase product_case(bool transpose_a, bool transpose_b, std::int64_t rows, std::int64_t depth, std::int64_t columns) {
  return {{transpose_a, transpose_b}, transpose_a ? Shape{depth, rows} : Shape{rows, depth}, transpose_b ? Shape{columns, depth} : Shape{depth, columns}};
}

TEST_CASE("products whose operands lie a multiple of 2 KiB apart are those of the loops") {
  const MatmulCase cases[] = {product_case(true, false, 512, 260, 33), product_case(false, false, 33, 260, 512), product_case(true, false, 512, 260, 512),
                              product_case(true, false, 33, 260, 512), product_case(true, true, 1024, 260, 40), product_case(false, true, 40, 260, 512)};
  for (const auto& c : cases) {
    const AnyOperation op = c.op;
    const auto a = random_array<float>(c.a, 1).any(), b = random_array<float>(c.b, 2).any();
    const TensorType types[] = {a.type(), b.type()};
    const auto outputs = c.op.infer_shape(types);
    const auto by = [&](KernelTier tier, int threads) { return array_of(run_kernel(op, {held(a), held(b)}, outputs, {.highest = tier, .threads = threads})[0]); };
    const auto expected = by(KernelTier::reference, 1);
    for (const int threads : {1, 2}) {
      CAPTURE(c.text(), threads);
      CHECK(largest_difference(by(KernelTier::library, threads), expected) < 1e-5);
    }
  }
}

TEST_CASE("on AVX2, rows that evict one another from the caches are copied first: an operand takes as much memory again") {
  if (cpu::instruction_level() != cpu::InstructionLevel::avx2) {
    WARN("skipped: AVX2 is not this machine's best level of instructions");
    return;
  }
  const auto scratch = [](const MatmulCase& c) {
    const AnyOperation op = c.op;
    const TensorType in[] = {{DType::float32, c.a}, {DType::float32, c.b}};
    const auto out = c.op.infer_shape(in);
    const Layout offered[2];
    return cpu::onednn::make_matmul({op, in, out, offered, 1})->scratch_bytes;
  };
  constexpr std::int64_t wide = 1024, depth = 600, narrow = 64;
  constexpr std::size_t copy = depth * (wide + 16) * sizeof(float);
  const auto extra = [&](bool a, bool b, std::int64_t rows, std::int64_t columns) {  // beside a product with other distances
    return scratch(product_case(a, b, rows, depth, columns)) - scratch(product_case(a, b, rows == wide ? rows - 16 : rows, depth, columns == wide ? columns - 16 : columns));
  };
  CHECK(extra(true, false, wide, narrow) == copy);
  CHECK(extra(false, false, narrow, wide) == copy);
  CHECK(extra(true, false, narrow, wide) == copy);
  CHECK(scratch(product_case(false, false, narrow, 16500, wide)) < copy);  // more than 64 MiB
  CHECK(extra(false, true, narrow, wide) == 0);                            // the depth is contiguous
  CHECK(extra(false, false, wide, narrow) == 0);                           // b is narrow itself
  CHECK(extra(false, false, wide, wide) == 0);                             // oneDNN packs both operands
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
