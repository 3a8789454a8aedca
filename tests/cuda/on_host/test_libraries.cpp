// SPDX-License-Identifier: Apache-2.0
// Tests the kernels of cuBLASLt on the host, where a stand-in computes by definition. The tests check what it is asked for. They
// also count the copies between layouts in a step of ResNet-50, whose convolutions are cuDNN's.
#include "../device_run.hpp"

#include <map>

#include <replicator/cuda/libraries/cublaslt_matmul.cuh>
#include <replicator/cuda/libraries/cudnn_convolution.cuh>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/runtime/lowering.hpp>

#include "../../support/resnet_step.hpp"
#include "library_kernel.hpp"

namespace {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

// Compares the library's results with those of our loops.
template <class Op>
void check_library(const Op& op, const std::vector<AnyArray>& inputs, double tolerance) {
  const auto want = run_kernel_on(DeviceKind::cuda, op, inputs, {.highest = KernelTier::reference}), got = run_kernel_on(DeviceKind::cuda, op, inputs);
  check_close(got[0], want[0], tolerance, std::string{Op::name} + " of " + inputs[0].type().text() + " and " + inputs[1].type().text());
}

}  // namespace

TEST_CASE("products of float32 are shortened to TF32 only where that is asked for") {
  const auto sum_of = [](KernelChoice choice, DType dtype = DType::float32) {
    REQUIRE(library_kernel(Matmul{}, {{3, 4}, {4, 5}}, choice, dtype));
    return on_host::described.compute;
  };
  CHECK(sum_of({}) == CUBLAS_COMPUTE_32F_PEDANTIC);
  CHECK(sum_of({.tf32 = true}) == CUBLAS_COMPUTE_32F_FAST_TF32);
  CHECK(sum_of({.tf32 = true}, DType::bfloat16) == CUBLAS_COMPUTE_32F);
  CHECK(sum_of({.tf32 = true}, DType::float64) == CUBLAS_COMPUTE_64F);
}

TEST_CASE("products by cuBLASLt agree with our tiles, transposed, in batches, with one matrix for all") {
  const std::pair<Shape, Shape> pairs[] = {{{33, 20}, {20, 35}}, {{4, 3, 5, 7}, {4, 3, 7, 6}}, {{6, 5, 7}, {7, 3}}, {{7, 5}, {6, 5, 3}}, {{1, 1}, {1, 1}}};
  const auto turned = [](Shape s, bool turn) {
    if (turn) std::swap(s[s.rank() - 1], s[s.rank() - 2]);
    return s;
  };
  for (const auto& [left, right] : pairs)
    for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16})
      for (const bool turn_left : {false, true})
        for (const bool turn_right : {false, true}) {
          const Matmul op{turn_left, turn_right};
          REQUIRE(library_kernel(op, {turned(left, turn_left), turned(right, turn_right)}, {}, dtype));
          check_library(op, {random_values({dtype, turned(left, turn_left)}, 1), random_values({dtype, turned(right, turn_right)}, 2)},
                        dtype == DType::float32   ? 2e-5
                        : dtype == DType::float64 ? 1e-13
                                                  : 0.1);
        }
  CHECK(library_kernel(Matmul{}, {{2, 1, 5, 7}, {3, 7, 3}}) == nullptr);  // matrices are repeated in turns: our tiles are used
  CHECK(library_kernel(Matmul{}, {{3, 4}, {4, 5}}, {}, DType::int32) == nullptr);
}

TEST_CASE("sums of products that are split are added in the order of their parts") {
  REQUIRE(library_kernel(Matmul{}, {{3, 4}, {4, 5}}));
  CHECK(on_host::preferred.reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  CHECK(on_host::preferred.alignment == 16);
  CHECK(on_host::preferred.workspace == std::size_t{32} << 20);
  REQUIRE(library_kernel(Matmul{}, {{3, 4}, {4, 5}}, {.fastest = true}));
  CHECK(on_host::preferred.reductions == CUBLASLT_REDUCTION_SCHEME_MASK);
}

TEST_CASE("the libraries are named in what hosts compare") {
  CHECK_THAT(kernel_library(DeviceKind::cuda), Catch::StartsWith("cuDNN 9.19.0, cuBLASLt 13.0.0 for "));
}

// Counts the copies between layouts in a training step of ResNet-50 on a GPU, by the operation that needs them.
std::map<std::string, int> layout_copies(DType products, KernelChoice choice = {}) {
  const auto resolution = test::resnet_step({2, 3, 64, 64}, products);
  ExecutableCache cache{1, choice};
  const Graph& resolved = resolution.classes[0].graph;
  std::map<std::string, int> copies;
  for (const auto& node : lower(resolution.classes[0], DeviceKind::cuda, cache).nodes) {
    if (!node.relayout) continue;
    const auto* compute = resolved.node(node.node).template get<Compute>();
    ++copies[compute ? std::string{compute->operation.name()} : "a collective"];
  }
  return copies;
}

TEST_CASE("a step of ResNet-50 copies between layouts its images, the 17 weights that are not 1x1, and their gradients") {
  const std::map<std::string, int> few{{"convolution", 18}, {"a collective", 17}};
  CHECK(layout_copies(DType::float32) == few);
  CHECK(layout_copies(DType::bfloat16) == few);
  CHECK(layout_copies(DType::float32, {.row_major_images = true}).empty());
}
