// SPDX-License-Identifier: Apache-2.0
// Sorting kernels of cuda:0, with shapes that reach each of their code paths.
#include "sorted.hpp"

#include <replicator/cpu/gather.hpp>
#include <replicator/cpu/index.hpp>
#include <replicator/cpu/top_k.hpp>
#include <replicator/graph/choose_kernel.hpp>

namespace test_cuda_sorted {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

TEST_CASE("scatter_add of long runs gives the CPU's bits") {
  if (!gpu_is_here()) return;
  for (const auto dtype : summed_dtypes)
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

TEST_CASE("lines of a thread each, a warp's and a block's have the CPU's largest, a few and all") {
  if (!gpu_is_here()) return;
  for (const auto dtype : every_dtype)
    for (const std::int64_t extent : {20, 200, 1500})
      for (const bool few : {false, true}) {
        const AnyArray x = random_lines({dtype, {2, extent, 3}}, 8, few);
        INFO(x.type().text());
        CHECK(gives_the_cpus_bits(ArgMax{1}, {x}));
        for (const std::int64_t k : {std::int64_t{3}, std::int64_t{17}, extent}) CHECK(gives_the_cpus_bits(TopK{1, k}, {x}));
      }
}

TEST_CASE("lines that lie side by side, enough for a thread each, have the CPU's largest") {
  if (!gpu_is_here()) return;
  for (const auto dtype : {DType::float32, DType::int64}) {
    const AnyArray x = random_lines({dtype, {2, 40, 9000}}, 3, true);
    CHECK(gives_the_cpus_bits(ArgMax{1}, {x}));
    CHECK(gives_the_cpus_bits(TopK{1, 2}, {x}));
    CHECK(gives_the_cpus_bits(TopK{1, 20}, {x}));
  }
}

}  // namespace test_cuda_sorted
