// SPDX-License-Identifier: Apache-2.0
// Tests pooling by cuDNN's plain calls, on the host. A stand-in computes poolings by definition. The tests check the calls
// and layouts that cuDNN gets, and the cases that it must not get. Results may differ from the CPU's only by rounding.
#include "../device_run.hpp"

#include <limits>
#include <string>
#include <utility>

#include <replicator/cpu/pooling.hpp>
#include <replicator/cuda/libraries/cudnn_pooling.cuh>
#include <replicator/graph/choose_kernel.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/replicator.hpp>

namespace {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

constexpr RunOptions by_library{.lowest = KernelTier::library}, loops{.highest = KernelTier::reference};
constexpr DType dtypes[] = {DType::float32, DType::float64, DType::bfloat16};

struct Case {
  Shape x;
  PoolingOptions options;
  Shape y() const { return replicator::detail::pooled_shape(x, options); }
};
const Case cases[] = {{{2, 3, 12, 12}, {{3, 3}, {2, 2}, {1, 1}}},
                      {{2, 5, 7, 9}, {{2, 3}, {2, 2}}},  // some elements are in no window
                      {{1, 2, 6, 5}, {{3, 3}, {1, 1}, {1, 1}, true}},
                      {{1, 4, 16, 16}, {{16, 16}, {16, 16}, {0, 0}, true}},
                      {{3, 1, 9, 8}, {{2, 4}, {3, 1}, {1, 3}}}};

// Makes the registry's kernel for these images. The result also names the kernel.
template <class Op>
std::unique_ptr<Executable> made(const Op& op, const TensorType& input, const Layout& offered = {}) {
  const AnyOperation operation{op};
  const auto outputs = operation.infer_shape({&input, 1});
  return make_executable(DeviceKind::cuda, {operation, {&input, 1}, outputs, {&offered, 1}});
}

// Compares cuDNN's result with the CPU's, for images that are offered in both layouts.
template <class Op>
void check_as_on_cpu(const Op& op, const AnyArray& input, double tolerance) {
  const auto want = run_kernel_on(DeviceKind::cpu, op, {input}, loops)[0];
  const Layout last = simplest(channels_last(input.shape()), input.shape());
  for (const bool is_last : {false, true}) {
    const RunOptions options{.lowest = KernelTier::library, .channels_last = is_last};
    check_close(run_kernel_on(DeviceKind::cuda, op, {input}, options)[0], want, tolerance, std::string{Op::name} + " of " + input.type().text());
    CHECK(on_host::pooled.x.format == (is_last && !last.plain ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW));
  }
}
constexpr double but_for_signs_of_zeros = std::numeric_limits<double>::denorm_min();
double rounding(DType dtype) { return dtype == DType::float32   ? 1e-6
                                      : dtype == DType::float64 ? 1e-15
                                                                : 4e-3; }

}  // namespace

TEST_CASE("maxima by cuDNN are the CPU's, infinities and NaN among the elements or not") {
  for (const auto& c : cases)
    for (const auto dtype : dtypes)
      for (const bool odd : {false, true}) check_as_on_cpu(MaxPool{c.options}, random_values({dtype, c.x}, 1, odd), but_for_signs_of_zeros);
  const Array<float> x{{1, 1, 2, 3}, {1, std::nanf(""), 3, 4, 5, 6}};
  const auto y = run_kernel_on(DeviceKind::cuda, MaxPool{{{2, 2}, {1, 1}}}, {x.any()}, by_library)[0];
  for (const float maximum : y.as<float>()) CHECK(std::isnan(maximum));
}

TEST_CASE("averages by cuDNN, and their gradients, are the CPU's but for rounding") {
  for (const auto& c : cases)
    for (const auto dtype : dtypes)
      for (const bool count_include_pad : {false, true}) {
        PoolingOptions options = c.options;
        options.count_include_pad = count_include_pad;
        check_as_on_cpu(AveragePool{options}, random_values({dtype, c.x}, 1), rounding(dtype));
        CHECK_FALSE(on_host::pooled.backward);
        check_as_on_cpu(AveragePoolTranspose{options, c.x}, random_values({dtype, c.y()}, 2), rounding(dtype));
        CHECK(on_host::pooled.backward);
      }
}

TEST_CASE("cuDNN is asked for deterministic maxima that propagate NaN, and for averages with the padding counted or not") {
  const auto asked = [](const auto& op, const TensorType& input) {
    (void)run_kernel_on(DeviceKind::cuda, op, {random_values(input, 1)}, by_library);
    return on_host::pooled;
  };
  PoolingOptions options{{3, 4}, {2, 1}, {1, 2}};
  const Shape x{2, 3, 9, 8}, y = replicator::detail::pooled_shape(x, options);
  const auto maximum = asked(MaxPool{options}, {DType::float32, x});
  CHECK(maximum.pooling.mode == CUDNN_POOLING_MAX_DETERMINISTIC);
  CHECK(maximum.pooling.nan == CUDNN_PROPAGATE_NAN);
  const auto is = [](const std::int64_t(&pair)[2], std::int64_t height, std::int64_t width) { return pair[0] == height && pair[1] == width; };
  CHECK(is(maximum.pooling.window, 3, 4));
  CHECK(is(maximum.pooling.stride, 2, 1));
  CHECK(is(maximum.pooling.padding, 1, 2));
  CHECK(asked(AveragePool{options}, {DType::float32, x}).pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING);
  CHECK(asked(AveragePoolTranspose{options, x}, {DType::float32, y}).pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING);
  options.count_include_pad = true;
  CHECK(asked(AveragePool{options}, {DType::bfloat16, x}).pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING);
  CHECK(on_host::pooled.x.type == CUDNN_DATA_BFLOAT16);
  CHECK(asked(AveragePoolTranspose{options, x}, {DType::float64, y}).pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING);
  CHECK(on_host::pooled.y.type == CUDNN_DATA_DOUBLE);
}

TEST_CASE("pooling by cuDNN takes images as they are offered, and gives them so") {
  const Shape x{2, 5, 4, 4}, half{2, 5, 2, 2};
  const PoolingOptions two{{2, 2}, {2, 2}};
  const auto check = [](const auto& op, const Shape& from, const Shape& to) {
    Layout turned = channels_last(from);
    std::swap(turned.strides[2], turned.strides[3]);
    const auto plain = made(op, {DType::float32, from}), last = made(op, {DType::float32, from}, channels_last(from)), other = made(op, {DType::float32, from}, turned);
    for (const auto* executable : {plain.get(), last.get(), other.get()}) CHECK_THAT(std::string{executable->kernel}, Catch::StartsWith("cuDNN "));
    CHECK((plain->input_layouts[0].plain && plain->output_layouts[0].plain));
    CHECK((last->input_layouts[0] == channels_last(from) && last->output_layouts[0] == channels_last(to)));
    CHECK((other->input_layouts[0].plain && other->output_layouts[0].plain));
  };
  check(MaxPool{two}, x, half);
  check(AveragePool{two}, x, half);
  check(AveragePoolTranspose{two, x}, half, x);
  const auto pixel = made(MaxPool{{{4, 4}, {4, 4}}}, {DType::float32, x}, channels_last(x));
  CHECK(pixel->output_layouts[0].plain);  // so no copy follows
}

TEST_CASE("our kernel pools what cuDNN does not: padding of one side, large windows, no elements or more than an int counts, gradients of maxima") {
  const auto kernel = [](const PoolingOptions& options, const Shape& x) { return made(MaxPool{options}, {DType::float32, x})->kernel; };
  CHECK(kernel({{3, 3}, {2, 2}, {1, 1}}, {2, 3, 8, 8}) == "cuDNN max pool");
  CHECK(kernel({{3, 3}, {2, 2}, {{0, 1}, {0, 1}}}, {2, 3, 8, 8}) == "cuda max pool");
  CHECK(kernel({{16, 16}, {1, 1}}, {2, 3, 20, 20}) == "cuDNN max pool");
  CHECK(kernel({{1, 17}, {1, 1}}, {2, 3, 20, 20}) == "cuda max pool");
  CHECK(kernel({{17, 1}, {1, 1}}, {2, 3, 20, 20}) == "cuda max pool");
  CHECK(kernel({{2, 2}, {2, 2}}, {0, 3, 8, 8}) == "cuda max pool");
  CHECK(kernel({{1, 1}, {std::int64_t{1} << 31, 1}}, {2, 3, 8, 8}) == "cuda max pool");
  CHECK(kernel({{2, 2}, {2, 2}}, {1 << 12, 1 << 11, 16, 16}) == "cuda max pool");  // 2^31 elements
  CHECK(kernel({{2, 2}, {2, 2}}, {(1 << 12) - 1, 1 << 11, 16, 16}) == "cuDNN max pool");
  const PoolingOptions one_sided{{2, 3}, {2, 2}, {{1, 0}, {0, 1}}};
  const Shape x{2, 3, 9, 8}, y = replicator::detail::pooled_shape(x, one_sided);
  CHECK(made(AveragePool{one_sided}, {DType::float32, x})->kernel == "cuda average pool");
  CHECK(made(AveragePoolTranspose{one_sided, x}, {DType::float32, y})->kernel == "cuda average pool transpose");
  CHECK(made(AveragePoolTranspose{{{2, 2}, {2, 2}}, {2, 3, 8, 8}}, {DType::float32, {2, 3, 4, 4}})->kernel == "cuDNN average pool transpose");
  for (const auto dtype : dtypes) {
    const AnyArray images = random_values({dtype, x}, 1), dy = random_values({dtype, y}, 2);
    const auto same = [&](const auto& op, const AnyArray& input) {
      check_close(run_kernel_on(DeviceKind::cuda, op, {input})[0], run_kernel_on(DeviceKind::cpu, op, {input}, loops)[0], 0, "our kernel's result");
    };
    same(MaxPool{one_sided}, images);
    same(AveragePool{one_sided}, images);
    same(AveragePoolTranspose{one_sided, x}, dy);
  }
  constexpr auto gpu = static_cast<std::size_t>(DeviceKind::cuda), library = static_cast<std::size_t>(KernelTier::library);
  CHECK(kernels<MaxPoolSpread>::slot[gpu][library].load() == nullptr);
  CHECK(kernels<MaxPoolPick>::slot[gpu][library].load() == nullptr);
}

TEST_CASE("our kernel pools what cuDNN refuses, which is found out while a step is planned") {
  const auto kernel = [](const auto& op, DType dtype) { return made(op, {dtype, {2, 3, 8, 8}})->kernel; };
  const PoolingOptions options{{3, 3}, {2, 2}, {1, 1}};
  on_host::refused_poolings = CUDNN_DATA_BFLOAT16;
  CHECK(kernel(MaxPool{options}, DType::bfloat16) == "cuda max pool");
  CHECK(kernel(AveragePool{options}, DType::bfloat16) == "cuda average pool");
  CHECK(kernel(MaxPool{options}, DType::float32) == "cuDNN max pool");
  on_host::refused_poolings = -1;
  CHECK(kernel(MaxPool{options}, DType::bfloat16) == "cuDNN max pool");
}

TEST_CASE("cuDNN is tried with the descriptors of the real images, but for their number") {
  const PoolingOptions options{{3, 2}, {2, 1}, {1, 0}};
  const Shape x{5, 3, 9, 8}, y = replicator::detail::pooled_shape(x, options);
  const auto tried = [&](const auto& op, const TensorType& input, bool is_last) {
    (void)made(op, input, is_last ? channels_last(input.shape) : Layout{});
    const auto of = [](const cudnnTensorStruct& t) { return Shape{t.extents[0], t.extents[1], t.extents[2], t.extents[3]}; };
    CHECK(of(on_host::pooled.x) == Shape{1, 3, 9, 8});
    CHECK(of(on_host::pooled.y) == Shape{1, 3, y[2], y[3]});
    CHECK(on_host::pooled.x.format == (is_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW));
    CHECK((on_host::pooled.pooling.padding[0] == 1 && on_host::pooled.pooling.padding[1] == 0));
    CHECK((on_host::pooled.pooling.stride[0] == 2 && on_host::pooled.pooling.stride[1] == 1));
  };
  for (const bool is_last : {false, true}) {
    tried(MaxPool{options}, {DType::bfloat16, x}, is_last);
    tried(AveragePoolTranspose{options, x}, {DType::float32, y}, is_last);
  }
}

TEST_CASE("a step says which poolings are cuDNN's, and its losses are the CPU's") {
  const auto train_on = [](const char* devices) {
    const char* const arguments[] = {"--replicas", "2", "--input-threads", "1", "--devices", devices};
    Replicator repl{Deployment::from(arguments)};
    const auto input_fn = [](const InputContext& ctx) {
      return data::from_generator([ctx](std::int64_t position) {
        PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
        Array<float> images{{2, 3, 8, 8}};
        for (auto& value : images) value = random.uniform();
        return images;
      });
    };
    auto step = repl.replicate(input_fn, [](ReplicaContext& replica, Tensor<float> images) {
      const auto scale = replica.variable<float>("scale", {3, 8, 8}, Initializer::ones());
      const auto pooled = max_pool(average_pool(images * scale.read(), {.window = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}), {.window = {2, 2}});
      const auto loss = mean(pooled * pooled);
      nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
      return loss;
    });
    double last = 0;
    for (auto [loss] : step.steps(3)) last = mean(loss);
    return std::pair{last, step.explain({.nodes = 1000})};
  };
  const auto [loss, text] = train_on("cuda:0");
  for (const char* kernel : {"by cuDNN max pool:", "by cuDNN average pool:", "by cuDNN average pool transpose:", "by cuda max pool spread:"}) CHECK_THAT(text, Catch::Contains(kernel));
  CHECK(loss == Approx(train_on("cpu:0").first).epsilon(1e-5));
}
