// SPDX-License-Identifier: Apache-2.0
// Sorting kernels of cuda:0, with random shapes.
#include <rapidcheck.h>

#include "sorted.hpp"

#include <replicator/cpu/gather.hpp>
#include <replicator/cpu/index.hpp>
#include <replicator/cpu/top_k.hpp>

namespace test_cuda_sorted_any {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

std::int64_t draw(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }
template <class T, std::size_t n>
T draw_one_of(const T (&all)[n]) {
  return all[draw(0, static_cast<std::int64_t>(n) - 1)];
}

// Around axis 1: short ones, such as a warp takes, such as a block takes.
TensorType draw_lines() {
  const std::int64_t extent = draw_one_of({draw(1, 32), draw(33, 200), draw(1025, 1500)});
  return {draw_one_of(every_dtype), {draw(0, 3), extent, draw(1, 3)}};
}

}  // namespace

TEST_CASE("scatter_add of any shape gives the CPU's bits") {
  if (!gpu_is_here()) return;
  REQUIRE(rc::check("in front of the axis, at it and behind it; indices that are repeated, missing, none", [] {
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const std::int64_t extent = draw_one_of({1, 2, 7, 300, 70000}), outer = draw(0, 3), inner = draw(0, 4);
    const Shape indexed{draw(0, 40), draw(1, 5)};
    const AnyArray indices = random_indices(draw_one_of({DType::int32, DType::int64}), indexed, extent, seed);
    const AnyArray x = random_values({draw_one_of(summed_dtypes), {outer, indexed[0], indexed[1], inner}}, seed, draw(0, 1) == 1);
    RC_ASSERT(gives_the_cpus_bits(ScatterAdd{1, extent}, {x, indices}));
  }));
}

TEST_CASE("argmax of any lines gives the CPU's places: the first NaN, else the first of the largest") {
  if (!gpu_is_here()) return;
  REQUIRE(rc::check("of equal elements, zeros of both signs, infinities, NaN", [] {
    const auto lines = draw_lines();
    RC_ASSERT(gives_the_cpus_bits(ArgMax{1}, {random_lines(lines, *rc::gen::arbitrary<std::uint32_t>(), draw(0, 1) == 1)}));
  }));
}

TEST_CASE("top_k of any lines gives the CPU's elements and places, of few and of all") {
  if (!gpu_is_here()) return;
  REQUIRE(rc::check("of equal elements, zeros of both signs, infinities, NaN", [] {
    const auto lines = draw_lines();
    const std::int64_t k = draw_one_of({draw(1, std::min<std::int64_t>(lines.shape[1], 5)), draw(1, lines.shape[1]), lines.shape[1]});
    RC_ASSERT(gives_the_cpus_bits(TopK{1, k}, {random_lines(lines, *rc::gen::arbitrary<std::uint32_t>(), draw(0, 1) == 1)}));
  }));
}

}  // namespace test_cuda_sorted_any
