// SPDX-License-Identifier: Apache-2.0
// Kernels of cuda:0 that put elements in order, of any shapes: the CPU's loops are the reference, bit for bit.
#include <rapidcheck.h>

#include "device_run.hpp"

#include <replicator/cpu/gather.hpp>
#include <replicator/cpu/index.hpp>
#include <replicator/cpu/top_k.hpp>
#include <replicator/graph/make_executable.hpp>

namespace test_cuda_sorted {

using namespace replicator;
using namespace replicator::test;

namespace {

constexpr DType every[] = {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8, DType::boolean, DType::bfloat16};
constexpr DType summed[] = {DType::float32, DType::float64, DType::int32, DType::int64, DType::bfloat16};

std::int64_t draw(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }
template <class T, std::size_t n>
T draw_one_of(const T (&all)[n]) {
  return all[draw(0, static_cast<std::int64_t>(n) - 1)];
}

// The same bits, but for those that tell one NaN from another.
bool same(const AnyArray& a, const AnyArray& b) {
  return visit_dtype(a.dtype(), [&]<class T>() {
    const auto equal = [](T x, T y) { return (x != x && y != y) || std::memcmp(&x, &y, sizeof x) == 0; };
    return a.type() == b.type() && std::ranges::equal(a.as<T>(), b.as<T>(), equal);
  });
}

template <class Op>
bool gives_the_cpus_bits(const Op& op, const std::vector<AnyArray>& inputs) {
  return std::ranges::equal(run_kernel_on(DeviceKind::cuda, op, inputs), run_kernel_on(DeviceKind::cpu, op, inputs), &same);
}

AnyArray random_indices(DType dtype, const Shape& shape, std::int64_t extent, std::uint64_t seed) {
  AnyArray indices{{dtype, shape}};
  PhiloxStream random{seed, 7};
  visit_dtype(dtype, [&]<class I>() {
    for (auto& value : indices.as<I>()) value = static_cast<I>(static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(extent))));
  });
  return indices;
}

// With infinities, NaN and zeros of both signs; few different ones, so that many are equal, or whole numbers of all bits.
AnyArray random_lines(const TensorType& type, std::uint64_t seed, bool few) {
  AnyArray x = random_values(type, seed, true);
  visit_dtype(type.dtype, [&]<class T>() {
    for (auto& value : x.as<T>())
      if (few) value = static_cast<T>(std::floor(static_cast<float>(value) / 4));
      else if constexpr (std::is_integral_v<T>) value = static_cast<T>(static_cast<std::uint64_t>(value) * 0x9e3779b97f4a7c15);
  });
  return x;
}
// Around axis 1: short ones, such as a warp takes, such as a block takes.
TensorType draw_lines() {
  const std::int64_t extent = draw_one_of({draw(1, 32), draw(33, 200), draw(1025, 1500)});
  return {draw_one_of(every), {draw(0, 3), extent, draw(1, 3)}};
}

}  // namespace

TEST_CASE("scatter_add of any shape gives the CPU's bits") {
  if (!gpu_is_here()) return;
  REQUIRE(rc::check("in front of the axis, at it and behind it; indices that are repeated, missing, none", [] {
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const std::int64_t extent = draw_one_of({1, 2, 7, 300, 70000}), outer = draw(0, 3), inner = draw(0, 4);
    const Shape indexed{draw(0, 40), draw(1, 5)};
    const AnyArray indices = random_indices(draw_one_of({DType::int32, DType::int64}), indexed, extent, seed);
    const AnyArray x = random_values({draw_one_of(summed), {outer, indexed[0], indexed[1], inner}}, seed, draw(0, 1) == 1);
    RC_ASSERT(gives_the_cpus_bits(ScatterAdd{1, extent}, {x, indices}));
  }));
}

TEST_CASE("scatter_add of long runs gives the CPU's bits") {
  if (!gpu_is_here()) return;
  for (const auto dtype : summed)
    for (const std::int64_t extent : {1, 3, 900}) {
      const AnyArray indices = random_indices(DType::int32, {10007}, extent, 5), x = random_values({dtype, {10007, 2}}, 6);
      INFO(name_of(dtype) << ", summed at " << extent << " places");
      CHECK(gives_the_cpus_bits(ScatterAdd{0, extent}, {x, indices}));
    }
}

TEST_CASE("scatter_add asks for scratch in proportion to its indices") {
  if (!gpu_is_here()) return;
  const auto scratch_for = [](std::int64_t count) {
    const AnyOperation operation{ScatterAdd{0, 1 << 20}};
    const TensorType inputs[] = {{DType::float32, {count, 64}}, {DType::int64, {count}}};
    const Layout offered[2];
    const auto outputs = operation.infer_shape(inputs);
    return make_executable(DeviceKind::cuda, {operation, inputs, outputs, offered})->scratch_bytes;
  };
  CHECK(scratch_for(1 << 20) >= std::size_t{16} << 20);
  CHECK(scratch_for(1 << 20) < std::size_t{24} << 20);
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

TEST_CASE("lines that lie side by side, more than a launch has threads, have the CPU's largest") {
  if (!gpu_is_here()) return;
  for (const auto dtype : {DType::float32, DType::int64}) {
    const AnyArray x = random_lines({dtype, {2, 40, 9000}}, 3, true);
    CHECK(gives_the_cpus_bits(ArgMax{1}, {x}));
    CHECK(gives_the_cpus_bits(TopK{1, 2}, {x}));
    CHECK(gives_the_cpus_bits(TopK{1, 20}, {x}));
  }
}

}  // namespace test_cuda_sorted
