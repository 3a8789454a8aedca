// SPDX-License-Identifier: Apache-2.0
// The other operations of networks on cuda:0, besides elementwise operations, reductions and products. The reference is
// the CPU's plain loops. Their bits are expected wherever no library and no transcendental function is involved.
#include "device_run.hpp"

#include <limits>

#include <replicator/cpu/convolution.hpp>
#include <replicator/cpu/cumulative_sum.hpp>
#include <replicator/cpu/gather.hpp>
#include <replicator/cpu/index.hpp>
#include <replicator/cpu/matmul.hpp>
#include <replicator/cpu/movement.hpp>
#include <replicator/cpu/pooling.hpp>
#include <replicator/cpu/random.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/cpu/resize.hpp>
#include <replicator/cpu/top_k.hpp>
#include <replicator/graph/choose_kernel.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/ops/fusion/convolution_in_parts.hpp>
#include <replicator/ops/matmul.hpp>

namespace test_cuda_layers {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

constexpr DType every_dtype[] = {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8, DType::boolean, DType::bfloat16};
constexpr RunOptions loops{.highest = KernelTier::reference};

std::unique_ptr<Executable> gpu_kernel(const AnyOperation& operation, const std::vector<TensorType>& inputs, const TensorType& output,
                                       const std::vector<Layout>& offered) {
  const auto& kernel = operation.slots()[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(KernelTier::reference)];
  return kernel.load()->make({operation, inputs, {&output, 1}, offered, 1});
}

template <class Op>
void check_same(const Op& op, const std::vector<AnyArray>& inputs, double tolerance = 0) {
  const auto want = run_kernel_on(DeviceKind::cpu, op, inputs, loops);
  for (const bool channels_last : {false, true}) {
    const auto got = run_kernel_on(DeviceKind::cuda, op, inputs, {.highest = KernelTier::reference, .channels_last = channels_last});
    for (std::size_t o = 0; o < want.size(); ++o)
      check_close(got[o], want[o], tolerance, std::string{Op::name} + ", which gives " + want[o].type().text() + (channels_last ? ", of NHWC" : ""));
  }
}

// Channels last for channels last, row-major for row-major: nothing is to be copied.
template <class Op>
bool is_given_as_offered(const Op& op, const std::vector<Shape>& inputs, const Shape& output) {
  const AnyOperation operation{op};
  std::vector<TensorType> types;
  std::vector<Layout> plain(inputs.size()), last;
  for (const auto& shape : inputs) {
    types.push_back({DType::float32, shape});
    last.push_back(channels_last(shape));
  }
  const TensorType result{DType::float32, output};
  const auto made = [&](const std::vector<Layout>& offered) { return gpu_kernel(operation, types, result, offered); };
  const auto of_plain = made(plain), of_last = made(last);
  return of_plain->input_layouts == plain && of_plain->output_layouts[0].plain && of_last->input_layouts == last &&
         of_last->output_layouts[0] == channels_last(output);
}

struct ConvolutionCase {
  Shape x, w;
  ConvolutionOptions options = {};

  AnyArray image(DType dtype) const { return random_values({dtype, x}, 1); }
  AnyArray weights(DType dtype) const { return random_values({dtype, w}, 2); }
  AnyArray upstream(DType dtype) const { return random_values({dtype, detail::convolution_shape(x, w, options)}, 3); }
};

// Calls check(operation, its inputs) for the three operations of a convolution.
template <class F>
void for_all_three(const ConvolutionCase& c, DType dtype, F&& check) {
  check(Convolution{c.options}, {c.image(dtype), c.weights(dtype)});
  check(ConvolutionBackwardData{c.options, c.x}, {c.upstream(dtype), c.weights(dtype)});
  check(ConvolutionBackwardWeights{c.options, c.w}, {c.image(dtype), c.upstream(dtype)});
}

double norm_of_difference(const AnyArray& a, const AnyArray& b) {
  double difference = 0, norm = 0;
  visit_dtype(a.dtype(), [&]<class T>() {
    for (std::int64_t i = 0; i < a.shape().elements(); ++i) {
      const auto x = static_cast<double>(a.as<T>()[static_cast<std::size_t>(i)]), y = static_cast<double>(b.as<T>()[static_cast<std::size_t>(i)]);
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  });
  return std::sqrt(difference / norm);
}

// False, and the reason on the screen, where only plain loops are part of this program.
template <class Op>
bool has_library() {
  if (kernels<Op>::slot[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(KernelTier::library)].load()) return true;
  WARN("no library is part of this program: nothing is compared");
  return false;
}

// The library against our loops on the GPU, and against itself. It must not decline, unless a lower tier than its own is allowed.
template <class Op>
void check_library(const Op& op, const std::vector<AnyArray>& inputs, double tolerance, KernelTier lowest = KernelTier::library) {
  const RunOptions by_library{.lowest = lowest};
  INFO(Op::name << " of " << inputs[0].type().text() << " and " << inputs[1].type().text());
  const auto want = run_kernel_on(DeviceKind::cuda, op, inputs, loops), got = run_kernel_on(DeviceKind::cuda, op, inputs, by_library);
  const auto again = run_kernel_on(DeviceKind::cuda, op, inputs, by_library);
  for (std::size_t o = 0; o < want.size(); ++o) {
    CHECK(norm_of_difference(got[o], want[o]) < tolerance);
    CHECK(std::memcmp(again[o].data(), got[o].data(), got[o].size_bytes()) == 0);
  }
}

constexpr double but_for_signs_of_zeros = std::numeric_limits<double>::denorm_min();

// The library's pooling against our kernel's on the GPU, and against itself, on images in both layouts.
template <class Op>
void check_pooling(const Op& op, const AnyArray& input, double tolerance) {
  for (const bool channels_last : {false, true}) {
    const RunOptions ours{.highest = KernelTier::reference, .channels_last = channels_last}, by_library{.lowest = KernelTier::library, .channels_last = channels_last};
    const auto got = run_kernel_on(DeviceKind::cuda, op, {input}, by_library)[0], again = run_kernel_on(DeviceKind::cuda, op, {input}, by_library)[0];
    check_close(got, run_kernel_on(DeviceKind::cuda, op, {input}, ours)[0], tolerance, std::string{Op::name} + " of " + input.type().text() + (channels_last ? ", of NHWC" : ""));
    CHECK(std::memcmp(again.data(), got.data(), got.size_bytes()) == 0);
  }
}

}  // namespace

TEST_CASE("movement of every type of element gives the CPU's bits") {
  if (!gpu_is_here()) return;
  for (const auto dtype : every_dtype) {
    const AnyArray x = random_values({dtype, {3, 1, 5, 7}}, 1);
    check_same(Transpose{{3, 0, 2, 1}}, {x});
    check_same(Transpose{{0, 1, 2, 3}}, {x});
    check_same(Slice{{1, 0, 0, 1}, {3, 1, 5, 6}, {1, 1, 2, 3}}, {x});
    check_same(Pad{{1, 0, 2, 0}, {0, 3, 0, 1}, {0, 0, 1, 2}, 1}, {x});
    check_same(Concat{2}, {x, random_values({dtype, {3, 1, 2, 7}}, 2), random_values({dtype, {3, 1, 0, 7}}, 3), x});
  }
  check_same(Transpose{{}}, {random_values({DType::float32, {}}, 1)});
  check_same(Transpose{{1, 0}}, {random_values({DType::float32, {0, 3}}, 1)});
}

TEST_CASE("a change of layout puts channels last, and back") {
  if (!gpu_is_here()) return;
  const AnyArray x = random_values({DType::float32, {2, 3, 4, 5}}, 1);
  const Layout last = channels_last(x.shape());
  check_close(run_kernel_on(DeviceKind::cuda, LayoutCopy{last}, {x})[0], x, 0, "a copy that is read back as NHWC");
  check_close(run_kernel_on(DeviceKind::cuda, LayoutCopy{Layout{}}, {x}, {.channels_last = true})[0], x, 0, "the way back");
  const AnyArray want = run_kernel_on(DeviceKind::cpu, Transpose{{0, 2, 3, 1}}, {x})[0], got = relaid(x, Layout{}, last);
  CHECK(std::memcmp(got.data(), want.data(), want.size_bytes()) == 0);  // NHWC is what this test takes it for
}

TEST_CASE("pooling and resizing give images as they are offered") {
  const Shape x{2, 5, 4, 4}, half{2, 5, 2, 2}, twice{2, 5, 8, 8};
  const PoolingOptions two{{2, 2}, {2, 2}};
  CHECK(is_given_as_offered(MaxPool{two}, {x}, half));
  CHECK(is_given_as_offered(MaxPoolSpread{two}, {x, half}, x));
  CHECK(is_given_as_offered(AveragePoolTranspose{two, x}, {half}, x));
  CHECK(is_given_as_offered(Resize{{8, 8}}, {x}, twice));
  CHECK(is_given_as_offered(ResizeTranspose{{2, 2}}, {x}, half));
}

TEST_CASE("pooling and its gradients give the CPU's bits") {
  if (!gpu_is_here()) return;
  struct Case {
    Shape x, y;
    PoolingOptions options;
  };
  const Case cases[] = {{{2, 3, 12, 12}, {2, 3, 6, 6}, {{3, 3}, {2, 2}, {1, 1}}},
                        {{2, 5, 7, 9}, {2, 5, 3, 4}, {{2, 3}, {2, 2}, {{0, 0}, {0, 0}}}},
                        {{1, 2, 6, 5}, {1, 2, 6, 5}, {{3, 3}, {1, 1}, {1, 1}, true}},
                        {{1, 1, 4, 4}, {1, 1, 1, 1}, {{4, 4}, {4, 4}}},
                        {{2, 1, 9, 9}, {2, 1, 3, 3}, {{2, 2}, {4, 4}, {{1, 0}, {0, 1}}}},
                        {{2, 16, 9, 8}, {2, 16, 5, 4}, {{3, 3}, {2, 2}, {1, 1}}},    // eight channels at a time
                        {{1, 8, 18, 20}, {1, 8, 2, 4}, {{17, 17}, {1, 1}, {0, 0}}},  // places that fill no byte
                        {{1, 24, 5, 7}, {1, 24, 4, 6}, {{2, 2}, {1, 1}, {0, 0}, false}}};
  for (const auto& c : cases)
    for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      const AnyArray x = random_values({dtype, c.x}, 1), odd = random_values({dtype, c.x}, 2, true), dy = random_values({dtype, c.y}, 3);
      REQUIRE(detail::pooled_shape(c.x, c.options) == c.y);
      for (const auto& image : {x, odd}) {
        check_same(MaxPool{c.options}, {image});
        check_same(MaxPoolSpread{c.options}, {image, dy});
        if (dtype == DType::bfloat16) check_same(MaxPoolSpread{c.options}, {image, random_values({DType::float32, c.y}, 4)});
        check_same(MaxPoolPick{c.options}, {image, x});
      }
      check_same(AveragePool{c.options}, {x});
      check_same(AveragePoolTranspose{c.options, c.x}, {dy});
    }
}

TEST_CASE("pooling by the library agrees with our kernels, twice with the same bits, averages but for rounding, maxima of NaN and infinities too") {
  if (!gpu_is_here()) return;
  if (!has_library<MaxPool>()) return;
  struct Case {
    Shape x;
    PoolingOptions options;
  };
  const PoolingOptions resnet{{3, 3}, {2, 2}, {1, 1}}, largest{{16, 16}, {1, 1}};
  const Case cases[] = {{{2, 64, 112, 112}, resnet}, {{2, 5, 7, 9}, {{2, 3}, {2, 2}}}, {{3, 1, 9, 8}, {{2, 4}, {3, 1}, {1, 3}, true}}, {{2, 24, 20, 20}, largest}};
  for (const auto& c : cases)
    for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      const double rounding = dtype == DType::float32   ? 1e-5
                              : dtype == DType::float64 ? 1e-14
                                                        : 1e-2;
      check_pooling(MaxPool{c.options}, random_values({dtype, c.x}, 1, true), but_for_signs_of_zeros);
      check_pooling(AveragePool{c.options}, random_values({dtype, c.x}, 2), rounding);
      check_pooling(AveragePoolTranspose{c.options, c.x}, random_values({dtype, detail::pooled_shape(c.x, c.options)}, 3), rounding);
    }
  for (const auto& c : {Case{{48, 64, 112, 112}, resnet}, Case{{1, 64, 400, 400}, largest}})  // more than 2^23 windows
    check_pooling(MaxPool{c.options}, random_values({DType::float32, c.x}, 1), but_for_signs_of_zeros);
}

// NVIDIA's reference does not say so. Where this fails maxima have to stay ours, as their gradients do: see cuda/libraries/cudnn_pooling.cuh.
TEST_CASE("by the library, too, the maximum of nothing but -infinity is -infinity") {
  if (!gpu_is_here()) return;
  if (!has_library<MaxPool>()) return;
  for (const auto& options : {PoolingOptions{{3, 3}, {2, 2}, {1, 1}}, PoolingOptions{{2, 2}, {2, 2}}, PoolingOptions{{5, 7}, {1, 1}}, PoolingOptions{{4, 16}, {1, 1}}})
    for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      AnyArray x{{dtype, {2, 24, 20, 20}}};
      visit_dtype(dtype, [&]<class T>() {
        if constexpr (!std::is_integral_v<T>) std::fill(x.as<T>().begin(), x.as<T>().end(), -std::numeric_limits<T>::infinity());
      });
      check_pooling(MaxPool{options}, x, but_for_signs_of_zeros);
    }
}

TEST_CASE("convolution and its gradients by plain loops give the CPU's bits") {
  if (!gpu_is_here()) return;
  const ConvolutionCase cases[] = {{{2, 3, 9, 8}, {4, 3, 3, 3}, {.padding = {1, 1}}},
                                   {{2, 3, 17, 16}, {5, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},
                                   {{1, 6, 5, 5}, {9, 2, 1, 1}, {.stride = {2, 1}, .groups = 3}},
                                   {{2, 4, 8, 9}, {4, 2, 2, 3}, {.stride = {2, 3}, .padding = {{1, 0}, {0, 2}}, .dilation = {2, 1}, .groups = 2}},
                                   {{0, 3, 9, 8}, {4, 3, 3, 3}}};
  for (const auto& c : cases)
    for (const auto dtype : {DType::float32, DType::float64, DType::int32, DType::bfloat16})
      for_all_three(c, dtype, [](const auto& op, const std::vector<AnyArray>& inputs) { check_same(op, inputs); });
}

TEST_CASE("convolution by the library agrees with plain loops at the shapes of ResNet-50, twice with the same bits") {
  if (!gpu_is_here()) return;
  if (!has_library<Convolution>()) return;
  const ConvolutionCase cases[] = {{{2, 3, 224, 224}, {64, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},
                                   {{2, 64, 56, 56}, {64, 64, 3, 3}, {.padding = {1, 1}}},
                                   {{2, 64, 56, 56}, {256, 64, 1, 1}},
                                   {{2, 128, 56, 56}, {128, 128, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
                                   {{2, 256, 56, 56}, {512, 256, 1, 1}, {.stride = {2, 2}}},
                                   {{2, 512, 7, 7}, {512, 512, 3, 3}, {.padding = {1, 1}}},
                                   {{2, 2048, 7, 7}, {512, 2048, 1, 1}},
                                   {{4, 3, 32, 32}, {64, 3, 3, 3}, {.padding = {1, 1}}},
                                   {{2, 8, 20, 20}, {8, 4, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}, .groups = 2}}};
  for (const auto& c : cases)
    for (const auto dtype : {DType::float32, DType::bfloat16})
      for_all_three(c, dtype, [&](const auto& op, const std::vector<AnyArray>& inputs) {
        const bool is_of_resnet = c.options.groups == 1;  // others the library may decline
        check_library(op, inputs, dtype == DType::float32 ? 1e-5 : 5e-3, is_of_resnet ? KernelTier::library : KernelTier::reference);
      });
}

TEST_CASE("sums over a convolution's channels beside it, by our kernels: y is the plain one's, the sums are of y") {
  if (!gpu_is_here()) return;
  const ConvolutionCase cases[] = {{{2, 3, 9, 8}, {4, 3, 3, 3}, {.padding = {1, 1}}}, {{3, 5, 8, 6}, {70, 5, 1, 1}, {.stride = {2, 2}}}, {{2, 4, 8, 9}, {6, 2, 2, 3}, {.groups = 2}}};
  for (const auto& c : cases)
    for (const auto dtype : {DType::float32, DType::bfloat16}) {
      const std::vector<AnyArray> inputs{random_values({dtype, c.x}, 1), random_values({dtype, c.w}, 2)};
      const auto got = run_kernel_on(DeviceKind::cuda, FusedConvolution{.options = c.options, .statistics = true}, inputs, loops);
      check_close(got[0], run_kernel_on(DeviceKind::cuda, Convolution{c.options}, inputs)[0], 0, "y");
      const auto sums = run_kernel_on(DeviceKind::cpu, channel_sums(got[0].shape()), {got[0]});
      for (std::size_t o = 0; o < 2; ++o) check_close(got[o + 1], sums[o], 1e-4, o == 0 ? "sums" : "sums of squares");
    }
}

TEST_CASE("a convolution and its sums by the library agree with our kernels where it has an engine, twice with the same bits") {
  if (!gpu_is_here()) return;
  if (!has_library<FusedConvolution>()) return;
  const ConvolutionCase cases[] = {{{2, 3, 224, 224}, {64, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},
                                   {{2, 64, 56, 56}, {64, 64, 3, 3}, {.padding = {1, 1}}},
                                   {{2, 64, 56, 56}, {256, 64, 1, 1}},
                                   {{2, 128, 56, 56}, {128, 128, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
                                   {{2, 2048, 7, 7}, {512, 2048, 1, 1}}};
  int by_library = 0;
  for (const auto& c : cases) {
    const AnyOperation operation{FusedConvolution{.options = c.options, .statistics = true}};
    const std::vector<TensorType> types{{DType::bfloat16, c.x}, {DType::bfloat16, c.w}};
    const auto outputs = operation.infer_shape(types);
    const std::vector<Layout> offered(2);
    by_library += make_executable(DeviceKind::cuda, {operation, types, outputs, offered})->kernel == "cuDNN graph";
    check_library(FusedConvolution{.options = c.options, .statistics = true}, {random_values(types[0], 1), random_values(types[1], 2)}, 5e-3, KernelTier::reference);
  }
  WARN("of " << std::size(cases) << " shapes cuDNN's graphs take " << by_library);
}

TEST_CASE("arithmetic before or behind a convolution by the library agrees with our kernels where it has an engine, twice with the same bits") {
  if (!gpu_is_here()) return;
  if (!has_library<FusedConvolution>()) return;
  Expression norm;  // a batch norm and ReLU
  norm.inputs = 4;
  const auto centred = norm.apply(ScalarOp::subtract, norm.input(0), norm.input(1));
  norm.outputs = {norm.apply(ScalarOp::rectify, norm.apply(ScalarOp::add, norm.apply(ScalarOp::multiply, centred, norm.input(2)), norm.input(3)))};
  const ConvolutionCase cases[] = {{{2, 64, 56, 56}, {64, 64, 3, 3}, {.padding = {1, 1}}},
                                   {{2, 64, 56, 56}, {256, 64, 1, 1}},
                                   {{2, 128, 56, 56}, {128, 128, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
                                   {{2, 512, 7, 7}, {2048, 512, 1, 1}}};
  int asked = 0, by_library = 0;
  for (const auto& c : cases)
    for (const auto dtype : {DType::float32, DType::bfloat16})
      for (const bool behind : {false, true}) {
        FusedConvolution operation{.options = c.options};
        (behind ? operation.epilogue : operation.prologue) = norm;
        std::vector<AnyArray> inputs{c.image(dtype)}, numbers;
        for (unsigned i = 0; i < 3; ++i) numbers.push_back(random_values({DType::float32, {1, behind ? c.w[0] : c.x[1], 1, 1}}, 10 + i));
        if (behind) inputs.push_back(c.weights(dtype));
        inputs.insert(inputs.end(), numbers.begin(), numbers.end());
        if (!behind) inputs.push_back(c.weights(dtype));
        std::vector<TensorType> types;
        for (const auto& input : inputs) types.push_back(input.type());
        const AnyOperation any{operation};
        const auto outputs = any.infer_shape(types);
        const std::vector<Layout> offered(types.size());
        ++asked;
        by_library += make_executable(DeviceKind::cuda, {any, types, outputs, offered})->kernel == "cuDNN graph";
        check_library(operation, inputs, dtype == DType::float32 ? 1e-5 : 1e-2, KernelTier::reference);
      }
  WARN("of " << asked << " cuDNN's graphs take " << by_library);
}

TEST_CASE("argmax of every type, along every axis, of equal elements and NaN") {
  if (!gpu_is_here()) return;
  for (const auto dtype : every_dtype)
    for (const std::int64_t axis : {0, 1, 2}) check_same(ArgMax{axis}, {random_values({dtype, {6, 31, 5}}, 4, true)});
}

TEST_CASE("gather and scatter_add give the CPU's bits, and refuse an index that points nowhere with the CPU's words") {
  if (!gpu_is_here()) return;
  for (const auto dtype : every_dtype)
    for (const auto index : {DType::int32, DType::int64}) {
      const AnyArray x = random_values({dtype, {3, 40, 5}}, 1);
      AnyArray indices{{index, {2, 9}}};
      PhiloxStream random{7, 7};
      visit_dtype(index, [&]<class I>() {
        for (auto& value : indices.as<I>()) value = static_cast<I>(static_cast<int>(random.below(40)));
      });
      check_same(Gather{1}, {x, indices});
      if (dtype == DType::uint8 || dtype == DType::boolean) continue;
      check_same(ScatterAdd{1, 40}, {random_values({dtype, {3, 2, 9, 5}}, 2), indices});
    }
  const auto check_refused = [](const auto& op, const AnyArray& x, const AnyArray& indices, const std::string& what) {
    const auto refusal_on = [&](DeviceKind kind) -> std::string {
      try {
        (void)run_kernel_on(kind, op, {x, indices});
      } catch (const DataError& error) {
        return error.what();
      }
      return "nothing was refused";
    };
    CHECK(refusal_on(DeviceKind::cuda) == refusal_on(DeviceKind::cpu));
    CHECK_THAT(refusal_on(DeviceKind::cuda), Catch::StartsWith("the index " + what));
  };
  const auto values = [](Shape shape) { return random_values({DType::float32, shape}, 1); };
  const AnyArray outside = Array<std::int32_t>{{2, 2}, {0, 3, 4, -1}}.any();
  const AnyArray far = Array<std::int64_t>{{2}, {0, -(std::int64_t{1} << 40)}}.any();
  check_refused(Gather{0}, values({4, 3}), outside, "4 at [1, 0]");
  check_refused(Gather{1}, values({3, 4}), outside, "4 at [1, 0]");
  check_refused(Gather{0}, values({4, 0}), outside, "4 at [1, 0]");
  check_refused(Gather{0}, values({0, 3}), outside, "0 at [0, 0]");
  check_refused(Gather{0}, values({4, 3}), far, "-1099511627776 at [1]");
  check_refused(ScatterAdd{0, 4}, values({2, 2, 3}), outside, "4 at [1, 0]");
  check_refused(ScatterAdd{0, 0}, values({2, 2, 3}), outside, "0 at [0, 0]");
  check_refused(ScatterAdd{0, 4}, values({2, 3}), far, "-1099511627776 at [1]");
  AnyArray many{{DType::int32, {100000}}};
  many.as<std::int32_t>()[77777] = many.as<std::int32_t>()[99999] = 5;
  check_refused(Gather{0}, values({4, 1}), many, "5 at [77777]");
}

TEST_CASE("random numbers: uniform ones have the CPU's bits, normal ones its values") {
  if (!gpu_is_here()) return;
  for (const auto dtype : {DType::float32, DType::float64})
    for (const std::int64_t count : {1, 2, 7, 1000, 100003}) {
      check_same(Random{Distribution::uniform, {dtype, {count}}, 5}, {});
      check_same(Random{Distribution::normal, {dtype, {count}}, 5}, {}, dtype == DType::float32 ? 2e-6 : 1e-14);
    }
}

TEST_CASE("random numbers of a fixed replica are those that it draws itself, with the CPU's bits") {
  if (!gpu_is_here()) return;
  constexpr std::uint32_t stream = (1u << 31) + 1;
  for (const auto dtype : {DType::float32, DType::float64}) {
    const TensorType type{dtype, {1000}};
    check_same(Random{Distribution::uniform, type, stream, 3}, {});
    check_same(Random{Distribution::normal, type, stream, 3}, {}, dtype == DType::float32 ? 2e-6 : 1e-14);
    const auto same = [&](std::int32_t a, std::int32_t b) {
      const auto draw = [&](std::int32_t of_replica) { return run_kernel_on(DeviceKind::cuda, Random{Distribution::uniform, type, stream, of_replica}, {})[0]; };
      return std::memcmp(draw(a).data(), draw(b).data(), type.bytes()) == 0;
    };
    CHECK(same(static_cast<std::int32_t>(context.replica), -1));
    CHECK_FALSE(same(3, -1));
  }
}

TEST_CASE("the largest elements, cumulative sums and resized images give the CPU's bits") {
  if (!gpu_is_here()) return;
  for (const auto dtype : every_dtype)
    for (const std::int64_t axis : {0, 1, 2}) {
      const AnyArray x = random_values({dtype, {6, 31, 5}}, 4, true);
      check_same(TopK{axis, 3}, {x});
      if (dtype == DType::uint8 || dtype == DType::boolean) continue;
      for (const bool exclusive : {false, true})
        for (const bool reverse : {false, true}) check_same(CumulativeSum{axis, exclusive, reverse}, {random_values({dtype, {6, 31, 5}}, 5)});
    }
  for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16})
    for (const auto interpolation : {Interpolation::nearest, Interpolation::bilinear})
      for (const Extents2d size : {Extents2d{10, 8}, Extents2d{15, 4}, Extents2d{7, 9}, Extents2d{3, 1}}) {
        check_same(Resize{size, interpolation}, {random_values({dtype, {2, 3, 5, 4}}, 6)});
        check_same(ResizeTranspose{{5, 4}, interpolation}, {random_values({dtype, {2, 3, size[0], size[1]}}, 7)});
      }
}

TEST_CASE("matrix products by the library agree with our tiles, twice with the same bits") {
  if (!gpu_is_here() || !has_library<Matmul>()) return;
  const std::pair<Shape, Shape> cases[] = {{{256, 2048}, {2048, 1000}}, {{33, 70}, {70, 65}}, {{4, 3, 50, 20}, {4, 3, 20, 31}}, {{6, 50, 20}, {20, 31}}, {{1, 1}, {1, 1}}};
  const auto turned = [](Shape s, bool turn) {
    if (turn) std::swap(s[s.rank() - 1], s[s.rank() - 2]);
    return s;
  };
  for (const auto& [left, right] : cases)
    for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16})
      for (const bool turn_left : {false, true})
        for (const bool turn_right : {false, true})
          check_library(Matmul{turn_left, turn_right},
                        {random_values({dtype, turned(left, turn_left)}, 1), random_values({dtype, turned(right, turn_right)}, 2)},
                        dtype == DType::float32   ? 1e-5
                        : dtype == DType::float64 ? 1e-13
                                                  : 5e-3);
}

TEST_CASE("products of bfloat16 are summed in float") {
  if (!gpu_is_here()) return;
  for (const bool left : {false, true})
    for (const bool right : {false, true}) {
      const AnyArray a = random_values({DType::bfloat16, left ? Shape{70, 33} : Shape{33, 70}}, 1),
                     b = random_values({DType::bfloat16, right ? Shape{65, 70} : Shape{70, 65}}, 2);
      check_same(Matmul{left, right}, {a, b}, 1e-2);
    }
}

}  // namespace test_cuda_layers
