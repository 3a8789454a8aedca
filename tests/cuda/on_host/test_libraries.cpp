// SPDX-License-Identifier: Apache-2.0
// Tests the kernels of cuDNN and cuBLASLt on the host, where stand-ins for both compute by definition. The tests check what the
// libraries are asked for, in which layouts and with which algorithms. They also count the copies between layouts.
#include "../device_run.hpp"

#include <map>

#include <replicator/cuda/libraries/cublaslt_matmul.cuh>
#include <replicator/cuda/libraries/cudnn_convolution.cuh>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/runtime/lowering.hpp>

#include "../../support/resnet_step.hpp"
#include "convolution_cases.hpp"
#include "restored.hpp"

namespace {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using cuda::cudnn::Forward;
using cuda::cudnn::ToData;
using cuda::cudnn::ToWeights;

constexpr auto library = static_cast<std::size_t>(KernelTier::library), gpu = static_cast<std::size_t>(DeviceKind::cuda);

// Makes the library's kernel for these inputs, all of one dtype. Null where the library declines.
template <class Op>
std::unique_ptr<Executable> make(const Op& op, const std::vector<Shape>& shapes, KernelChoice choice = {}, DType dtype = DType::float32) {
  const AnyOperation operation{op};
  std::vector<TensorType> inputs;
  for (const auto& shape : shapes) inputs.push_back({dtype, shape});
  const auto outputs = operation.infer_shape(inputs);
  const std::vector<Layout> offered(inputs.size());
  return kernels<Op>::slot[gpu][library].load()->make({operation, inputs, outputs, offered, 1, choice});
}

// Compares the library's results with those of our loops.
template <class Op>
void check_library(const Op& op, const std::vector<AnyArray>& inputs, double tolerance) {
  const auto want = run_kernel_on(DeviceKind::cuda, op, inputs, {.highest = KernelTier::reference}), got = run_kernel_on(DeviceKind::cuda, op, inputs);
  check_close(got[0], want[0], tolerance, std::string{Op::name} + " of " + inputs[0].type().text() + " and " + inputs[1].type().text());
}

template <class Call>
bool taken(int algorithm, cudnnDeterminism_t determinism, KernelChoice choice = {}) {
  using Algorithm = decltype(Call::Performance::algo);
  return cuda::cudnn::may_be_taken<Call>({static_cast<Algorithm>(algorithm), CUDNN_STATUS_SUCCESS, 1, 0, determinism, CUDNN_DEFAULT_MATH}, choice);
}

}  // namespace

TEST_CASE("convolution by cuDNN, with channels last and row-major, agrees with plain loops") {
  for (const bool nhwc : {true, false}) {
    const Restored forward{on_host::forward};
    const Restored to_data{on_host::to_data};
    const Restored to_weights{on_host::to_weights};
    on_host::forward.nhwc = on_host::to_data.nhwc = on_host::to_weights.nhwc = nhwc;
    for (const auto& c : convolution_cases)
      for (const auto dtype : {DType::float32, DType::bfloat16}) {
        const AnyArray x = random_values({dtype, c.x}, 1), w = random_values({dtype, c.w}, 2), dy = random_values({dtype, c.y()}, 3);
        const double tolerance = dtype == DType::float32 ? 2e-5 : 0.1;
        check_library(Convolution{c.options}, {x, w}, tolerance);
        check_library(ConvolutionBackwardData{c.options, c.x}, {dy, w}, tolerance);
        check_library(ConvolutionBackwardWeights{c.options, c.w}, {x, dy}, tolerance);
      }
  }
}

TEST_CASE("convolutions ask for channels last and give them, row-major where cuDNN cannot or that is asked for") {
  const auto& c = convolution_cases[0];
  const auto layouts = [&](KernelChoice choice) {
    const auto forward = make(Convolution{c.options}, {c.x, c.w}, choice), data = make(ConvolutionBackwardData{c.options, c.x}, {c.y(), c.w}, choice),
               weights = make(ConvolutionBackwardWeights{c.options, c.w}, {c.x, c.y()}, choice);
    std::vector<Layout> result;
    for (const auto* made : {forward.get(), data.get(), weights.get()})
      for (const auto* list : {&made->input_layouts, &made->output_layouts}) result.insert(result.end(), list->begin(), list->end());
    return result;
  };
  const Layout x = channels_last(c.x), w = channels_last(c.w), y = channels_last(c.y());
  CHECK(layouts({}) == std::vector{x, w, y, y, w, x, x, y, w});
  CHECK(layouts({.row_major_images = true}) == std::vector<Layout>(9));
  const Restored forward{on_host::forward};
  const Restored to_data{on_host::to_data};
  const Restored to_weights{on_host::to_weights};
  on_host::forward.nhwc = on_host::to_data.nhwc = on_host::to_weights.nhwc = false;
  for (const auto refusal : {CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_BAD_PARAM}) {
    on_host::forward.refusal = on_host::to_data.refusal = on_host::to_weights.refusal = refusal;
    CHECK(layouts({}) == std::vector<Layout>(9));
  }
}

TEST_CASE("what lies alike in both layouts is not copied: weights of 1x1, images of one channel or one pixel") {
  const auto pointwise = make(Convolution{}, {{2, 5, 8, 6}, {7, 5, 1, 1}});
  CHECK(pointwise->input_layouts == std::vector<Layout>{channels_last({2, 5, 8, 6}), Layout{}});
  const auto grey = make(Convolution{}, {{3, 1, 6, 5}, {4, 1, 3, 2}});
  CHECK(grey->input_layouts == std::vector<Layout>(2));
  CHECK(grey->output_layouts[0] == channels_last({3, 4, 4, 4}));
  const auto pixel = make(Convolution{}, {{2, 6, 1, 1}, {4, 6, 1, 1}});
  CHECK(pixel->input_layouts == std::vector<Layout>(2));
  CHECK(pixel->output_layouts[0].plain);
}

TEST_CASE("only algorithms that add products in one order are taken, any where that is asked for") {
  CHECK(taken<Forward>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_DETERMINISTIC));
  CHECK(taken<Forward>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_DETERMINISTIC));
  CHECK(taken<ToData>(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_DETERMINISTIC));
  CHECK(taken<ToWeights>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_DETERMINISTIC));
  CHECK_FALSE(taken<Forward>(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_DETERMINISTIC));
  CHECK_FALSE(taken<Forward>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_NON_DETERMINISTIC));
  CHECK_FALSE(taken<ToData>(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_DETERMINISTIC));
  CHECK_FALSE(taken<ToWeights>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_NON_DETERMINISTIC));
  CHECK(taken<Forward>(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_DETERMINISTIC, {.fastest = true}));
  CHECK(taken<ToWeights>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_NON_DETERMINISTIC, {.fastest = true}));
}

TEST_CASE("the first of the ranked algorithms that may be taken computes, in the memory it asked for") {
  const auto& c = convolution_cases[0];
  const AnyArray x = random_values({DType::float32, c.x}, 1), w = random_values({DType::float32, c.w}, 2), dy = random_values({DType::float32, c.y()}, 3);
  (void)run_kernel_on(DeviceKind::cuda, Convolution{c.options}, {x, w});
  (void)run_kernel_on(DeviceKind::cuda, ConvolutionBackwardData{c.options, c.x}, {dy, w});
  (void)run_kernel_on(DeviceKind::cuda, ConvolutionBackwardWeights{c.options, c.w}, {x, dy});
  CHECK(on_host::forward.last == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);  // Winograd was ranked first
  CHECK(on_host::to_data.last == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
  CHECK(on_host::to_weights.last == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
  CHECK(make(Convolution{c.options}, {c.x, c.w})->scratch_bytes == 1024);
  const Restored forward{on_host::forward};
  on_host::forward.workspace = (std::size_t{1} << 30) + 1;
  CHECK(make(Convolution{c.options}, {c.x, c.w}) == nullptr);  // plain loops are used
  on_host::forward = {};
  on_host::forward.algorithms.clear();
  CHECK(make(Convolution{c.options}, {c.x, c.w}) == nullptr);
}

TEST_CASE("float32 is shortened to TF32 only where that is asked for") {
  using cuda::cudnn::arithmetic_of;
  CHECK(arithmetic_of(DType::float32, {}) == CUDNN_FMA_MATH);
  CHECK(arithmetic_of(DType::float32, {.fastest = true}) == CUDNN_FMA_MATH);
  CHECK(arithmetic_of(DType::float32, {.tf32 = true}) == CUDNN_DEFAULT_MATH);
  CHECK(arithmetic_of(DType::bfloat16, {}) == CUDNN_TENSOR_OP_MATH);
  const auto& c = convolution_cases[0];
  const auto chosen = [&](DType dtype, KernelChoice choice) {
    cuda::cudnn::ConvolutionProblem problem{{c.options, c.x, c.w, c.y()}, dtype, CUDNN_TENSOR_NHWC, arithmetic_of(dtype, choice)};
    REQUIRE(cuda::cudnn::choose_algorithm<Forward>(problem, arithmetic_of(dtype, choice), choice));
    return problem.convolution.get()->arithmetic;
  };
  CHECK(chosen(DType::float32, {}) == CUDNN_FMA_MATH);
  CHECK(chosen(DType::float32, {.tf32 = true}) == CUDNN_TENSOR_OP_MATH);  // as cuDNN ranked it
  CHECK(chosen(DType::bfloat16, {}) == CUDNN_TENSOR_OP_MATH);
  const auto sum_of = [](KernelChoice choice, DType dtype = DType::float32) {
    REQUIRE(make(Matmul{}, {{3, 4}, {4, 5}}, choice, dtype));
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
          REQUIRE(make(op, {turned(left, turn_left), turned(right, turn_right)}, {}, dtype));
          check_library(op, {random_values({dtype, turned(left, turn_left)}, 1), random_values({dtype, turned(right, turn_right)}, 2)},
                        dtype == DType::float32   ? 2e-5
                        : dtype == DType::float64 ? 1e-13
                                                  : 0.1);
        }
  CHECK(make(Matmul{}, {{2, 1, 5, 7}, {3, 7, 3}}) == nullptr);  // matrices are repeated in turns: our tiles are used
  CHECK(make(Matmul{}, {{3, 4}, {4, 5}}, {}, DType::int32) == nullptr);
}

TEST_CASE("sums of products that are split are added in the order of their parts") {
  REQUIRE(make(Matmul{}, {{3, 4}, {4, 5}}));
  CHECK(on_host::preferred.reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  CHECK(on_host::preferred.alignment == 16);
  CHECK(on_host::preferred.workspace == std::size_t{32} << 20);
  REQUIRE(make(Matmul{}, {{3, 4}, {4, 5}}, {.fastest = true}));
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
