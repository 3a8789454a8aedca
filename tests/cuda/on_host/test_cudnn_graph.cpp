// SPDX-License-Identifier: Apache-2.0
// Tests fused convolutions by cuDNN's graph interface, on the host. A stand-in computes graphs by definition and refuses what
// cuDNN would refuse. Examples are descriptors that are used before they are finalised, or that are given attributes of another type.
#include "../device_run.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include <replicator/cuda/libraries/cudnn_convolution.cuh>
#include <replicator/cuda/libraries/cudnn_fused_convolution.cuh>
#include <replicator/graph/choose_kernel.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/runtime/lowering.hpp>

#include "../../support/resnet_step.hpp"
#include "convolution_cases.hpp"
#include "library_kernel.hpp"
#include "restored.hpp"

namespace {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using cuda::cudnn::Descriptor;
using cuda::cudnn::may_be_taken;

std::unique_ptr<Executable> make(const ConvolutionCase& c, DType dtype, KernelChoice choice = {}) {
  return library_kernel(FusedConvolution{.options = c.options, .statistics = true}, {c.x, c.w}, choice, dtype);
}

const ConvolutionCase& some = convolution_cases[0];

// Sums, for each channel, of the values and of the squares of y [N, C, H, W].
std::array<AnyArray, 2> sums_of(const AnyArray& y) {
  const Shape& s = y.shape();
  std::array<AnyArray, 2> result{AnyArray{{DType::float32, {s[1]}}}, AnyArray{{DType::float32, {s[1]}}}};
  visit_dtype(y.dtype(), [&]<class T>() {
    for (std::int64_t channel = 0; channel < s[1]; ++channel) {
      double sum = 0, squares = 0;
      for (std::int64_t n = 0; n < s[0]; ++n)
        for (std::int64_t i = 0; i < s[2] * s[3]; ++i) {
          const auto value = static_cast<double>(y.as<T>()[static_cast<std::size_t>((n * s[1] + channel) * s[2] * s[3] + i)]);
          sum += value;
          squares += value * value;
        }
      result[0].as<float>()[static_cast<std::size_t>(channel)] = static_cast<float>(sum);
      result[1].as<float>()[static_cast<std::size_t>(channel)] = static_cast<float>(squares);
    }
  });
  return result;
}

cudnnStatus_t finalised(const Descriptor& d) { return cudnnBackendFinalize(d.get()); }

}  // namespace

TEST_CASE("the stand-in for cuDNN is strict: what is not finalised, or is of another type, is refused") {
  Descriptor tensor{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, operation{CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR};
  CHECK(finalised(tensor) == CUDNN_STATUS_BAD_PARAM);  // no attribute is set
  CHECK_THROWS_AS(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1.0f), cuda::cudnn::Unsupported);
  CHECK_THROWS_AS(tensor.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM), cuda::cudnn::Unsupported);
  CHECK_THROWS_AS(operation.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, tensor.get()), cuda::cudnn::Unsupported);
  const std::vector<std::int64_t> two{1, 1}, four{1, 1, 1, 1};
  CHECK_THROWS_AS(tensor.set_all(CUDNN_ATTR_TENSOR_STRIDES, std::span{two}), cuda::cudnn::Unsupported);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t{1})
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16})
      .set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span{four})
      .set_all(CUDNN_ATTR_TENSOR_STRIDES, std::span{four})
      .finalise();
  CHECK_NOTHROW(operation.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, tensor.get()));
  CHECK_THROWS_AS(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t{2}), cuda::cudnn::Unsupported);
}

TEST_CASE("by cuDNN and by our kernels, y is the plain convolution's and the statistics are those of y") {
  for (const auto& c : convolution_cases)
    for (const auto dtype : {DType::float32, DType::bfloat16}) {
      const std::vector<AnyArray> inputs{random_values({dtype, c.x}, 1), random_values({dtype, c.w}, 2)};
      const auto plain = run_kernel_on(DeviceKind::cuda, Convolution{c.options}, inputs, {.highest = KernelTier::reference});
      for (const auto tier : {KernelTier::reference, KernelTier::library}) {
        const auto got = run_kernel_on(DeviceKind::cuda, FusedConvolution{.options = c.options, .statistics = true}, inputs, {.highest = tier, .lowest = tier});
        check_close(got[0], plain[0], dtype == DType::float32 ? 2e-5 : 0.1, "y of " + c.x.text());
        const auto sums = sums_of(got[0]);
        for (std::size_t o = 0; o < 2; ++o) check_close(got[o + 1], sums[o], 1e-5, "sums of " + c.x.text());
      }
    }
}

TEST_CASE("it asks for channels last, and gives y so; row-major images are left to the plain kernels") {
  const auto made = make(some, DType::bfloat16);
  CHECK(made->input_layouts == std::vector{channels_last(some.x), channels_last(some.w)});
  CHECK(made->output_layouts == std::vector{channels_last(some.y()), Layout{}, Layout{}});
  CHECK(make(some, DType::bfloat16, {.row_major_images = true}) == nullptr);
}

TEST_CASE("engines are taken that add products in one order, of float32 without TF32; any where that is asked for") {
  using Notes = cuda::cudnn::NumericalNotes;
  const Notes cores{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, shortens{CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS};
  CHECK(may_be_taken({}, DType::float32, {}));
  CHECK(may_be_taken({CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, DType::float32, {}));
  CHECK(may_be_taken(cores, DType::bfloat16, {}));
  for (const Notes& notes : {cores, shortens}) {
    CHECK_FALSE(may_be_taken(notes, DType::float32, {}));
    CHECK_FALSE(may_be_taken(notes, DType::float32, {.fastest = true}));
    CHECK(may_be_taken(notes, DType::float32, {.tf32 = true}));
  }
  for (const auto note : {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_FFT,
                          CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
                          CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13}) {
    CHECK_FALSE(may_be_taken({note}, DType::bfloat16, {}));
    CHECK(may_be_taken({note}, DType::bfloat16, {.fastest = true}));
  }
}

TEST_CASE("the first of the ranked engines that may be taken, and of which a plan can be made, computes") {
  const Restored engines{on_host::engines};
  const auto engine_for = [&](DType dtype) {
    (void)run_kernel_on(DeviceKind::cuda, FusedConvolution{.options = some.options, .statistics = true}, {random_values({dtype, some.x}, 1), random_values({dtype, some.w}, 2)},
                        {.lowest = KernelTier::library});
    return on_host::engines.last;
  };
  CHECK(engine_for(DType::bfloat16) == 1);  // engine 0 is not deterministic
  CHECK(engine_for(DType::float32) == 2);   // engine 1 would use TF32
  CHECK(make(some, DType::bfloat16)->scratch_bytes == 512);
  on_host::engines.ranked[1].plan = CUDNN_STATUS_NOT_SUPPORTED;
  CHECK(engine_for(DType::bfloat16) == 2);
  on_host::engines.ranked[1].plan = CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
  CHECK(engine_for(DType::bfloat16) == 2);
  on_host::engines.ranked[2].workspace = (std::int64_t{1} << 30) + 1;
  on_host::engines.fallback = {{7, {}}};
  CHECK(engine_for(DType::bfloat16) == 7);
}

TEST_CASE("a GPU on which cuDNN needs more scratch than was planned, or has no engine, is refused before anything is computed") {
  const Restored engines{on_host::engines};
  const Restored device{on_host::current_device};
  const auto planned = make(some, DType::bfloat16);
  on_host::engines.ranked[1].workspace = 513;
  on_host::current_device = 1;
  CHECK_THROWS_WITH(planned->run(Launch{}),
                    "cuDNN needs 513 bytes of scratch on this GPU, but 512 on the GPU that the step was planned for: "
                    "all GPUs of a job must be of one kind");
  on_host::engines.ranked.clear();
  on_host::current_device = 2;
  CHECK_THROWS_AS(planned->run(Launch{}), DeviceError);
}

TEST_CASE("where cuDNN has no engine the plain convolution and our sums are taken; an error of another kind is told") {
  const Restored engines{on_host::engines};
  for (const auto refusal : {CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_BAD_PARAM}) {
    on_host::engines.graph = refusal;
    CHECK(make(some, DType::bfloat16) == nullptr);
  }
  const AnyOperation operation{FusedConvolution{.options = some.options, .statistics = true}};
  const std::vector<TensorType> inputs{{DType::bfloat16, some.x}, {DType::bfloat16, some.w}};
  const auto outputs = operation.infer_shape(inputs);
  const std::vector<Layout> offered(2);
  CHECK(make_executable(DeviceKind::cuda, {operation, inputs, outputs, offered})->kernel == "convolution in parts");
  on_host::engines.graph = CUDNN_STATUS_SUCCESS;
  on_host::engines.ranked.clear();
  CHECK(make(some, DType::bfloat16) == nullptr);
  on_host::engines.graph = CUDNN_STATUS_INTERNAL_ERROR;
  CHECK_THROWS_WITH(make(some, DType::bfloat16), Catch::Contains("cuDNN: cudnnBackendFinalize gave"));
}

// --- arithmetic before and after a convolution ---

namespace {

// A batch norm's arithmetic, (x0 - x1) x2 + x3, then an optional residual sum with x4, then ReLU.
Expression norm(bool residual) {
  Expression e;
  e.inputs = residual ? 5 : 4;
  auto value = e.apply(ScalarOp::add, e.apply(ScalarOp::multiply, e.apply(ScalarOp::subtract, e.input(0), e.input(1)), e.input(2)), e.input(3));
  if (residual) value = e.apply(ScalarOp::add, e.input(4), value);
  e.outputs = {e.apply(ScalarOp::rectify, value)};
  return e;
}

struct FusedCase {
  FusedConvolution operation;
  std::vector<AnyArray> inputs;
};
FusedCase fused_case(const ConvolutionCase& c, DType dtype, bool prologue, bool epilogue, bool statistics) {
  FusedCase result{{.options = c.options, .statistics = statistics}, {random_values({dtype, c.x}, 1)}};
  const auto channels = [&](std::int64_t n) {
    for (int i = 0; i < 3; ++i) result.inputs.push_back(random_values({DType::float32, {1, n, 1, 1}}, 10 + static_cast<unsigned>(i)));
  };
  if (prologue) {
    result.operation.prologue = norm(false);
    channels(c.x[1]);
  }
  result.inputs.push_back(random_values({dtype, c.w}, 2));
  if (epilogue) {
    result.operation.epilogue = norm(true);
    channels(c.w[0]);
    result.inputs.push_back(random_values({dtype, c.y()}, 3));
  }
  return result;
}

// Runs a Map, a convolution, a Map and sums as separate operations, by our kernels.
std::vector<AnyArray> one_after_the_other(const FusedCase& c) {
  const auto run = [](const auto& operation, const std::vector<AnyArray>& inputs) {
    return run_kernel_on(DeviceKind::cuda, operation, inputs, {.highest = KernelTier::reference});
  };
  const auto map = [&](const Expression& e, const TensorType& type, const std::vector<AnyArray>& inputs) {
    return run(Map{std::make_shared<const Expression>(e), type.shape, {type.dtype}}, inputs)[0];
  };
  std::vector<TensorType> types;
  for (const auto& input : c.inputs) types.push_back(input.type());
  const auto n = static_cast<std::ptrdiff_t>(c.operation.image_inputs());
  AnyArray x = c.inputs[0];
  if (c.operation.has_prologue()) x = map(c.operation.prologue, c.operation.image(types), {c.inputs.begin(), c.inputs.begin() + n});
  std::vector<AnyArray> result = run(Convolution{c.operation.options}, {x, c.inputs[static_cast<std::size_t>(n)]});
  if (c.operation.has_epilogue()) {
    std::vector<AnyArray> operands{result[0]};
    operands.insert(operands.end(), c.inputs.begin() + n + 1, c.inputs.end());
    result[0] = map(c.operation.epilogue, c.operation.result(types), operands);
  }
  if (c.operation.statistics)
    for (auto& sums : sums_of(result[0])) result.push_back(std::move(sums));
  return result;
}

}  // namespace

TEST_CASE("by cuDNN and in parts, arithmetic around a convolution is what it is one after the other") {
  for (const auto& c : convolution_cases)
    for (const auto dtype : {DType::float32, DType::bfloat16})
      for (int which = 1; which < 6; ++which) {
        const bool prologue = which & 1, epilogue = which & 2, statistics = which & 4;
        const auto all = fused_case(c, dtype, prologue, epilogue, statistics);
        const auto want = one_after_the_other(all);
        for (const auto tier : {KernelTier::reference, KernelTier::library}) {
          const auto got = run_kernel_on(DeviceKind::cuda, all.operation, all.inputs, {.highest = tier, .lowest = tier});
          REQUIRE(got.size() == want.size());
          for (std::size_t o = 0; o < got.size(); ++o)
            check_close(got[o], want[o], dtype == DType::float32 ? 5e-5 : 0.1, all.operation.formula(200) + " of " + c.x.text());
        }
      }
}

TEST_CASE("of all shapes of ResNet-50's convolutions, too") {
  struct Of {
    std::int64_t channels, features, kernel, stride;
  };
  for (const Of of : {Of{64, 64, 3, 1}, {64, 256, 1, 1}, {128, 128, 3, 2}, {256, 512, 1, 2}, {512, 128, 1, 1}, {512, 512, 3, 1}}) {
    const ConvolutionCase c{{1, of.channels, 4, 4}, {of.features, of.channels, of.kernel, of.kernel}, {.stride = {of.stride, of.stride}, .padding = {of.kernel / 2, of.kernel / 2}}};
    for (int which = 1; which < 6; ++which) {
      const auto all = fused_case(c, DType::bfloat16, which & 1, which & 2, which & 4);
      const auto want = one_after_the_other(all), got = run_kernel_on(DeviceKind::cuda, all.operation, all.inputs, {.lowest = KernelTier::library});
      for (std::size_t o = 0; o < got.size(); ++o) check_close(got[o], want[o], o == 0 ? 0.5 : 0.05, all.operation.formula(200) + " of " + c.x.text() + " and " + c.w.text());
    }
  }
}

TEST_CASE("padding is of what the prologue gives, not of what it reads: its bias does not reach there") {
  auto all = fused_case(convolution_cases[0], DType::float32, true, false, false);
  for (auto& value : all.inputs[3].as<float>()) value = 5;
  const auto want = one_after_the_other(all);
  check_close(run_kernel_on(DeviceKind::cuda, all.operation, all.inputs, {.lowest = KernelTier::library})[0], want[0], 1e-3, "y");
}

TEST_CASE("NaN passes through the ReLU of a fused convolution, as through ours") {
  auto all = fused_case(some, DType::float32, false, true, false);
  all.inputs[0].as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const auto y = run_kernel_on(DeviceKind::cuda, all.operation, all.inputs, {.lowest = KernelTier::library})[0];
  CHECK(std::isnan(y.as<float>()[0]));
}

TEST_CASE("arithmetic that cuDNN's graphs are not asked for is left to the parts") {
  auto all = fused_case(some, DType::float32, false, true, false);
  Expression& e = all.operation.epilogue;
  e.outputs = {e.apply(ScalarOp::hyperbolic_tangent, e.outputs[0])};
  std::vector<TensorType> types;
  for (const auto& input : all.inputs) types.push_back(input.type());
  const AnyOperation operation{all.operation};
  const auto outputs = operation.infer_shape(types);
  const std::vector<Layout> offered(types.size());
  CHECK(make_executable(DeviceKind::cuda, {operation, types, outputs, offered})->kernel == "convolution in parts");
}

// --- in ResNet-50 ---

namespace {

struct Planned {
  std::map<std::string, int> by_kernel, copies;  // of fused convolutions; between layouts, by operation
  int channel_sums = 0;
};
Planned plan_resnet(bool training, DType dtype, ConvolutionFusions wanted) {
  const auto resolution = test::resnet_step({32, 3, 64, 64}, dtype, training, wanted);
  ExecutableCache cache{1};
  const Graph& resolved = resolution.classes[0].graph;
  Planned planned;
  for (const auto& node : lower(resolution.classes[0], DeviceKind::cuda, cache).nodes) {
    const auto& what = resolved.node(node.node);
    const auto* compute = what.get<Compute>();
    const auto* reduce = operation_of<Reduce>(what);
    if (node.relayout) ++planned.copies[compute ? std::string{compute->operation.name()} : "a collective"];
    else if (operation_of<FusedConvolution>(what)) ++planned.by_kernel[std::string{node.executable->kernel}];
    else if (reduce && reduce->axes == std::vector<std::int64_t>{0, 2, 3}) ++planned.channel_sums;
  }
  return planned;
}

}  // namespace

TEST_CASE("in a step of ResNet-50 the statistics of all 53 batch norms are cuDNN's, and no layout is copied for them") {
  const auto planned = plan_resnet(true, DType::bfloat16, {.statistics = true});
  CHECK(planned.by_kernel == std::map<std::string, int>{{"cuDNN graph", 53}});
  CHECK(planned.channel_sums == 53 - 4);  // left are sums of the backward pass; a shortcut shares 4 of them
  CHECK(planned.copies == std::map<std::string, int>{{"fused_convolution", 18}, {"a collective", 17}});
}

TEST_CASE("in float32 so are the 32 batch norms and ReLUs through which convolutions read") {
  const auto alone = plan_resnet(true, DType::float32, {.prologue = true}), together = plan_resnet(true, DType::float32, {true, true, true});
  CHECK(alone.by_kernel == std::map<std::string, int>{{"cuDNN graph", 32}});
  CHECK(together.by_kernel == std::map<std::string, int>{{"cuDNN graph", 53}});
  CHECK(together.channel_sums == 53 - 4);
}

TEST_CASE("where ResNet-50 is evaluated the ReLUs behind convolutions are cuDNN's") {
  CHECK(plan_resnet(false, DType::bfloat16, {.epilogue = true}).by_kernel == std::map<std::string, int>{{"cuDNN graph", 49}});
  CHECK(plan_resnet(false, DType::float32, {.epilogue = true}).by_kernel == std::map<std::string, int>{{"cuDNN graph", 48}});
}
