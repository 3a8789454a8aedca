// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include <replicator/cpu/copy.hpp>

#include "copy_cases.hpp"

namespace test_copy {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

bool loops_copy(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads,
                cpu::InstructionLevel level = cpu::instruction_level()) {
  return copies(*cpu::make_copy(shape, dtype, from, to, threads, level), shape, dtype, from, to);
}
cpu::InstructionLevel random_level() {
  const auto levels = instruction_levels();
  return levels[static_cast<std::size_t>(draw(0, static_cast<int>(levels.size())))];
}
DType random_dtype() {
  const DType dtypes[] = {DType::float32, DType::bfloat16, DType::float64, DType::uint8};
  return dtypes[draw(0, 4)];
}

// As oneDNN wants the weights of convolutions, and gives their gradients.
std::vector<Layout> weight_layouts(const Shape& shape) {
  return {weight_blocks(shape, {{1, 16}, {0, 16}}), weight_blocks(shape, {{0, 16}, {1, 16}}), weight_blocks(shape, {{1, 8}, {0, 16}, {1, 2}}),
          weight_blocks(shape, {{0, 8}, {1, 16}, {0, 2}}), weight_blocks(shape, {{1, 8}, {0, 8}}), weight_blocks(shape, {{1, 4}, {0, 16}, {1, 4}}),
          weight_blocks(shape, {{0, 16}}), permuted(shape, {2, 3, 1, 0}), permuted(shape, {0, 2, 3, 1})};
}

}  // namespace

TEST_CASE("a copy between any two layouts moves every element and writes zero where padding is") {
  CHECK(rc::check([] {
    static const Shape shapes[] = {{}, {1}, {37}, {5, 7}, {32, 48}, {2, 20, 5, 3}, {2, 32, 7, 7}, {33, 17, 3, 3}, {0, 3}, {2, 3, 4, 5, 6}};
    for (int repeat = 0; repeat < 20; ++repeat) {
      const Shape& shape = shapes[draw(0, static_cast<int>(std::size(shapes)))];
      RC_ASSERT(loops_copy(shape, random_dtype(), random_layout(shape), random_layout(shape), 1, random_level()));
    }
  }));
}

TEST_CASE("a copy between any two layouts of any extents is right at every instruction level, under one thread and three") {
  CHECK(rc::check([] {
    for (int repeat = 0; repeat < 10; ++repeat) {
      Shape shape;
      for (int rank = draw(1, 5), most = rank < 3   ? 300
                                         : rank < 4 ? 50
                                                    : 20;
           rank > 0; --rank) shape.push_back(draw(0, 2) ? draw(1, most) : 16);
      const DType dtype = random_dtype();
      const Layout from = random_layout(shape), to = random_layout(shape);
      RC_ASSERT(loops_copy(shape, dtype, from, to, draw(0, 2) ? 1 : 3, random_level()));
    }
  }));
}

TEST_CASE("the axes of a tensor go from any order to any other, with short rows that stay whole or change places") {
  for (const Shape& shape : {Shape{20, 3, 4, 16}, Shape{6, 5, 3, 8}, Shape{4, 3, 6, 33}}) {
    std::vector<std::size_t> order{0, 1, 2, 3};
    do {
      for (const auto level : instruction_levels())
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
          CHECK(loops_copy(shape, dtype, {}, permuted(shape, order), 1, level));
          CHECK(loops_copy(shape, dtype, permuted(shape, order), {}, 1, level));
        }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_CASE("weights go between plain memory and every layout of convolutions, whole blocks or not, at every instruction level") {
  for (const Shape& shape : {Shape{64, 32, 3, 3}, Shape{40, 24, 3, 3}, Shape{130, 70, 1, 1}, Shape{96, 160, 3, 3}, Shape{33, 17, 5, 5}, Shape{48, 3, 7, 7}})
    for (const Layout& layout : weight_layouts(shape))
      for (const DType dtype : {DType::float32, DType::bfloat16})
        for (const auto level : instruction_levels())
          for (const int threads : {1, 3}) {
            CHECK(loops_copy(shape, dtype, {}, layout, threads, level));
            CHECK(loops_copy(shape, dtype, layout, {}, threads, level));
          }
}

TEST_CASE("weights of convolutions go into blocks, and their gradients out of them, in rectangles") {
  using enum DType;
  for (const Shape& shape : {Shape{64, 32, 3, 3}, Shape{256, 64, 1, 1}, Shape{40, 24, 3, 3}}) {
    CHECK(cpu::copies_rectangles(shape, float32, weight_blocks(shape, {{1, 16}, {0, 16}}), {}));
    CHECK(cpu::copies_rectangles(shape, float32, {}, weight_blocks(shape, {{1, 16}, {0, 16}})));
    CHECK(cpu::copies_rectangles(shape, float32, {}, weight_blocks(shape, {{0, 16}, {1, 16}})));
    CHECK(cpu::copies_rectangles(shape, bfloat16, {}, weight_blocks(shape, {{1, 8}, {0, 16}, {1, 2}})));
    CHECK(cpu::copies_rectangles(shape, bfloat16, {}, weight_blocks(shape, {{0, 8}, {1, 16}, {0, 2}})));
    CHECK(!cpu::copies_rectangles(shape, float64, {}, weight_blocks(shape, {{1, 16}, {0, 16}})));
    CHECK(!cpu::copies_rectangles(shape, float32, {}, {}));
  }
  CHECK(!cpu::copies_rectangles({64, 3, 7, 7}, bfloat16, {}, weight_blocks({64, 3, 7, 7}, {{1, 8}, {0, 16}, {1, 2}})));
  CHECK(!cpu::copies_rectangles({0, 16, 3, 3}, float32, {}, weight_blocks({0, 16, 3, 3}, {{1, 16}, {0, 16}})));
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
