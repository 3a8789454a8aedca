// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/cpu/copy.hpp>

#include "copy_cases.hpp"

namespace test_copy {

using namespace replicator;
using namespace replicator::test;

namespace {

bool loops_copy(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads) {
  return copies(*cpu::make_copy(shape, dtype, from, to, threads), shape, dtype, from, to);
}

}  // namespace

TEST_CASE("a copy between any two layouts moves every element and writes zero where padding is") {
  CHECK(rc::check([] {
    static const Shape shapes[] = {{}, {1}, {37}, {5, 7}, {32, 48}, {2, 20, 5, 3}, {2, 32, 7, 7}, {33, 17, 3, 3}, {0, 3}, {2, 3, 4, 5, 6}};
    for (int repeat = 0; repeat < 20; ++repeat) {
      const Shape& shape = shapes[draw(0, static_cast<int>(std::size(shapes)))];
      const DType dtypes[] = {DType::float32, DType::float64, DType::uint8};
      RC_ASSERT(loops_copy(shape, dtypes[draw(0, 3)], random_layout(shape), random_layout(shape), 1));
    }
  }));
}

TEST_CASE("large copies between plain and 16-channel blocks agree under one and three threads") {
  const Shape shape{3, 40, 33, 31};
  for (const int threads : {1, 3}) {
    CHECK(loops_copy(shape, DType::float32, {}, blocked(shape, 1, 16), threads));
    CHECK(loops_copy(shape, DType::float32, blocked(shape, 1, 16), {}, threads));
    CHECK(loops_copy(shape, DType::float32, blocked(shape, 1, 16), permuted(shape, {0, 2, 3, 1}), threads));
  }
}

}  // namespace test_copy
