// SPDX-License-Identifier: Apache-2.0
// Kernels of bfloat16 sum in float32 and round their result once. They differ from the definition in double, rounded,
// by at most one unit in the last place.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <replicator/cpu/kernels.hpp>
#include <replicator/cpu/onednn/onednn_convolution.hpp>
#include <replicator/cpu/onednn/onednn_matmul.hpp>
#include <replicator/ops/resize.hpp>

#include "../support/convolution.hpp"
#include "../support/matmul.hpp"

namespace test_kernels {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

constexpr double one_unit = 0x1p-7;
const EvaluateOptions reference{.highest = KernelTier::reference}, library{.highest = KernelTier::library};

Array<float> widened(const Array<bfloat16>& x) {
  Array<float> result{x.shape()};
  std::copy(x.begin(), x.end(), result.begin());
  return result;
}
AnyArray rounded(const AnyArray& x) {
  Array<bfloat16> result{x.shape()};
  const auto values = x.as<float>();
  std::copy(values.begin(), values.end(), result.begin());
  return std::move(result).any();
}
bool equal_bits(const AnyArray& a, const AnyArray& b) {
  return a.type() == b.type() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// The operation on bfloat16 has the rounded bits of that on the same numbers in float32.
template <class Op>
void check_rounds_once(const Op& op, const std::vector<Array<bfloat16>>& inputs, const Array<std::int64_t>* indices = nullptr) {
  std::vector<Held> narrow, wide;
  for (const auto& x : inputs) narrow.push_back(held(x.any())), wide.push_back(held(widened(x).any()));
  if (indices) narrow.push_back(held(indices->any())), wide.push_back(held(indices->any()));
  const auto run = [&](const std::vector<Held>& values) {
    std::vector<TensorType> types;
    for (const auto& value : values) types.push_back(value.type);
    const auto outputs = op.infer_shape(types);
    return array_of(run_kernel(op, values, outputs, reference)[0]);
  };
  INFO(Op::name);
  CHECK(equal_bits(run(narrow), rounded(run(wide))));
}

}  // namespace

TEST_CASE("products of bfloat16 matrices are summed in float32 and rounded once, by oneDNN and by loops") {
  REQUIRE(rc::check([] {
    const auto c = draw_matmul(20);
    RC_LOG(c.text());
    RC_ASSERT(matmul_error<bfloat16>(c, library) <= one_unit);
    RC_ASSERT(matmul_error<bfloat16>(c, reference) <= one_unit);
  }));
  // So deep that a sum in bfloat16 would be far off.
  const MatmulCase deep{{false, true}, {33, 2000}, {65, 2000}};
  CHECK(matmul_error<bfloat16>(deep, library) <= one_unit);
  CHECK(matmul_error<bfloat16>(deep, reference) <= one_unit);
}

TEST_CASE("convolutions of bfloat16 and their transposes are summed in float32 and rounded once") {
  REQUIRE(rc::check([] {
    const auto c = draw_convolution({1, 3, 8});
    RC_LOG(c.text());
    RC_ASSERT(convolution_error<bfloat16>(c, library) <= one_unit);
  }));
  for (const std::int64_t channels : {3, 10, 32}) {
    const auto c = convolution_case({2, channels, 9, 7}, {20, channels, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}});
    CAPTURE(c.text());
    CHECK(convolution_error<bfloat16>(c, library) <= one_unit);
    CHECK(convolution_error<bfloat16>(c, reference) <= one_unit);
  }
  // Weights that meet only the padding of x: their gradient is zero, whatever is in the memory.
  for (const auto& c : {convolution_case({1, 8, 1, 2}, {3, 8, 1, 3}, {.stride = {1, 3}, .padding = {{0, 0}, {0, 1}}}),
                        convolution_case({2, 32, 1, 1}, {32, 32, 3, 3}, {.padding = {1, 1}}),
                        convolution_case({2, 16, 3, 1}, {32, 16, 3, 5}, {.stride = {2, 2}, .padding = {1, 2}})}) {
    CAPTURE(c.text());
    CHECK(convolution_error<bfloat16>(c, library) <= one_unit);
  }
  const auto grouped = convolution_case({2, 32, 8, 8}, {32, 8, 3, 3}, {.padding = {1, 1}, .groups = 4});
  CHECK(convolution_error<bfloat16>(grouped, library) <= one_unit);
}

TEST_CASE("pooling, resizing, running sums and scattered sums of bfloat16 are those of float32, rounded once") {
  const auto x = random_array<bfloat16>({2, 3, 8, 9}, 1), u = random_array<bfloat16>({2, 3, 8, 9}, 2);
  const PoolingOptions window{.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  const auto dy = random_array<bfloat16>(replicator::detail::pooled_shape(x.shape(), window), 3);
  check_rounds_once(MaxPool{window}, {x});
  check_rounds_once(MaxPoolSpread{window}, {x, dy});
  check_rounds_once(MaxPoolPick{window}, {x, u});
  check_rounds_once(AveragePool{window}, {x});
  check_rounds_once(AveragePoolTranspose{window, x.shape()}, {dy});
  check_rounds_once(Resize{{16, 5}, Interpolation::bilinear}, {x});
  check_rounds_once(ResizeTranspose{{4, 27}, Interpolation::bilinear}, {x});
  check_rounds_once(CumulativeSum{3}, {x});
  const Array<std::int64_t> rows{{4}, {1, 0, 1, 1}};
  check_rounds_once(Gather{0}, {x}, &rows);
  check_rounds_once(ScatterAdd{0, 5}, {random_array<bfloat16>({4, 7}, 4)}, &rows);
}

}  // namespace test_kernels
