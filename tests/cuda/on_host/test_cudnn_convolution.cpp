// SPDX-License-Identifier: Apache-2.0
// Tests convolutions and their gradients by cuDNN's graph interface, on the host. A stand-in computes graphs by definition. The
// tests check layouts, which engine computes and when plans are timed, and what stderr says where a plain loop runs.
#include "../device_run.hpp"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <replicator/cuda/libraries/cudnn_convolution.cuh>
#include <replicator/graph/choose_kernel.hpp>

#include "../../support/told.hpp"
#include "convolution_cases.hpp"
#include "library_kernel.hpp"
#include "restored.hpp"

namespace {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

const ConvolutionCase& some = convolution_cases[0];

// Calls f(operation, shapes of its inputs) for a convolution and its gradients.
template <class F>
void for_each_operation(const ConvolutionCase& c, F f) {
  f(Convolution{c.options}, std::vector{c.x, c.w});
  f(ConvolutionBackwardData{c.options, c.x}, std::vector{c.y(), c.w});
  f(ConvolutionBackwardWeights{c.options, c.w}, std::vector{c.x, c.y()});
}

// The engine that computes each of the three. An engine's workspace is told apart by its number.
std::vector<std::size_t> engines_taken(KernelChoice choice, DType dtype) {
  std::vector<std::size_t> result;
  for_each_operation(some, [&](const auto& op, const std::vector<Shape>& shapes) {
    const auto made = library_kernel(op, shapes, choice, dtype);
    result.push_back(made ? made->scratch_bytes : 0);
  });
  return result;
}
std::vector<std::size_t> thrice(std::size_t number) { return std::vector<std::size_t>(3, number); }

on_host::Engine engine(int number, double milliseconds, std::vector<cudnnBackendNumericalNote_t> notes = {}) {
  return {number, std::move(notes), CUDNN_STATUS_SUCCESS, number, milliseconds};
}

// Runs an executable on zeros, on the current device.
void run(const Executable& executable, const std::vector<Shape>& inputs, const Shape& output) {
  const Queue queue = device_queue();
  std::vector<DeviceBuffer> buffers;
  std::vector<const std::byte*> in;
  for (const auto& shape : inputs) in.push_back(buffers.emplace_back(TensorType{DType::float32, shape}.bytes()).data());
  std::byte* out = buffers.emplace_back(TensorType{DType::float32, output}.bytes()).data();
  const DeviceBuffer scratch{executable.scratch_bytes};
  executable.run({in.data(), &out, scratch.data(), context, queue.handle()});
}

}  // namespace

TEST_CASE("a convolution and both gradients by cuDNN, with channels last and row-major, agree with plain loops") {
  const Restored engines{on_host::engines};
  for (const auto status : {CUDNN_STATUS_SUCCESS, CUDNN_STATUS_NOT_SUPPORTED}) {
    on_host::engines.channels_last = status;
    for (const auto& c : convolution_cases)
      for (const auto dtype : {DType::float32, DType::bfloat16})
        for_each_operation(c, [&](const auto& op, const std::vector<Shape>& shapes) {
          const std::vector<AnyArray> inputs{random_values({dtype, shapes[0]}, 1), random_values({dtype, shapes[1]}, 2)};
          const auto want = run_kernel_on(DeviceKind::cuda, op, inputs, {.highest = KernelTier::reference})[0];
          const auto got = run_kernel_on(DeviceKind::cuda, op, inputs, {.lowest = KernelTier::library})[0];
          check_close(got, want, dtype == DType::float32 ? 2e-5 : 0.1, std::string{op.name} + " of " + inputs[0].type().text() + " and " + inputs[1].type().text());
        });
  }
}

TEST_CASE("convolutions ask for channels last and give them, row-major where cuDNN cannot or that is asked for") {
  const auto layouts = [](KernelChoice choice) {
    std::vector<Layout> result;
    for_each_operation(some, [&](const auto& op, const std::vector<Shape>& shapes) {
      const auto made = library_kernel(op, shapes, choice);
      REQUIRE(made);
      for (const auto* list : {&made->input_layouts, &made->output_layouts}) result.insert(result.end(), list->begin(), list->end());
    });
    return result;
  };
  const Layout x = channels_last(some.x), w = channels_last(some.w), y = channels_last(some.y());
  CHECK(layouts({}) == std::vector{x, w, y, y, w, x, x, y, w});
  CHECK(layouts({.row_major_images = true}) == std::vector<Layout>(9));
  const Restored engines{on_host::engines};
  for (const auto refusal : {CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_BAD_PARAM}) {
    on_host::engines.channels_last = refusal;
    CHECK(layouts({}) == std::vector<Layout>(9));
  }
}

TEST_CASE("what lies alike in both layouts is not copied: weights of 1x1, images of one channel or one pixel") {
  const auto pointwise = library_kernel(Convolution{}, {{2, 5, 8, 6}, {7, 5, 1, 1}});
  CHECK(pointwise->input_layouts == std::vector<Layout>{channels_last({2, 5, 8, 6}), Layout{}});
  const auto grey = library_kernel(Convolution{}, {{3, 1, 6, 5}, {4, 1, 3, 2}});
  CHECK(grey->input_layouts == std::vector<Layout>(2));
  CHECK(grey->output_layouts[0] == channels_last({3, 4, 4, 4}));
  const auto pixel = library_kernel(Convolution{}, {{2, 6, 1, 1}, {4, 6, 1, 1}});
  CHECK(pixel->input_layouts == std::vector<Layout>(2));
  CHECK(pixel->output_layouts[0].plain);
}

TEST_CASE("by default the first engine that adds in one order computes, however slow it is, and nothing runs while a step is planned") {
  const Restored engines{on_host::engines};
  on_host::engines.ranked = {engine(9, 1, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}), engine(8, 1, {CUDNN_NUMERICAL_NOTE_WINOGRAD}),
                             engine(7, 1, {CUDNN_NUMERICAL_NOTE_FFT}), engine(6, 50, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}), engine(5, 20), engine(4, 1)};
  on_host::engines.runs = 0;
  CHECK(engines_taken({}, DType::bfloat16) == thrice(6));
  CHECK(engines_taken({}, DType::float32) == thrice(5));
  CHECK(engines_taken({.tf32 = true}, DType::float32) == thrice(6));
  CHECK(on_host::engines.runs == 0);
}

TEST_CASE("an engine of which no plan can be made, or that needs too much memory, gives way to the next") {
  const Restored engines{on_host::engines};
  auto& ranked = on_host::engines.ranked;
  ranked = {engine(5, 1), engine(4, 1), engine(3, 1)};
  for (const auto refusal : {CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED}) {
    ranked[0].plan = refusal;
    CHECK(engines_taken({}, DType::bfloat16) == thrice(4));
  }
  ranked[1].workspace = (std::int64_t{1} << 30) + 1;
  CHECK(engines_taken({}, DType::bfloat16) == thrice(3));
  ranked[2].plan = CUDNN_STATUS_NOT_SUPPORTED;
  on_host::engines.fallback = {engine(2, 1, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}), engine(1, 1)};
  CHECK(engines_taken({}, DType::bfloat16) == thrice(1));
  ranked[2].plan = CUDNN_STATUS_INTERNAL_ERROR;
  CHECK_THROWS_WITH(engines_taken({}, DType::bfloat16), Catch::Contains("cuDNN: cudnnBackendFinalize gave"));
}

TEST_CASE("with --fastest-kernels the first four engines are timed, and the fastest computes") {
  const Restored engines{on_host::engines};
  auto& ranked = on_host::engines.ranked;
  ranked = {engine(6, 4), engine(5, 3, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}), engine(4, 2, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}), engine(3, 5), engine(2, 6), engine(1, 1)};
  on_host::engines.runs = 0;
  CHECK(engines_taken({.fastest = true}, DType::bfloat16) == thrice(4));
  CHECK(on_host::engines.runs == 3 * 4 * 4);
  ranked[2].milliseconds = 4;
  CHECK(engines_taken({.fastest = true}, DType::bfloat16) == thrice(5));
  CHECK(engines_taken({.fastest = true}, DType::float32) == thrice(6));  // 5 would use TF32, and 1 comes fifth
  CHECK(engines_taken({}, DType::bfloat16) == thrice(6));
}

TEST_CASE("other GPUs of a process take the engine that was the fastest on the first, untimed") {
  const Restored engines{on_host::engines};
  const Restored device{on_host::current_device};
  on_host::engines.ranked = {engine(3, 2), engine(2, 1), engine(1, 3)};
  const auto made = library_kernel(Convolution{some.options}, {some.x, some.w}, {.fastest = true});
  on_host::engines.ranked[0].milliseconds = 0;
  on_host::engines.runs = 0;
  on_host::current_device = 1;
  run(*made, {some.x, some.w}, some.y());
  CHECK(on_host::engines.last == 2);
  CHECK(on_host::engines.runs == 1);
}

TEST_CASE("where no memory is free for timing, the first engine computes") {
  const Restored engines{on_host::engines};
  const Restored memory{on_host::free_memory};
  on_host::engines.ranked = {engine(2, 2), engine(1, 1)};
  on_host::free_memory = 1000;
  CHECK(engines_taken({.fastest = true}, DType::float32) == thrice(2));
  on_host::free_memory = std::size_t{1} << 20;
  CHECK(engines_taken({.fastest = true}, DType::float32) == thrice(1));
}

TEST_CASE("a plan never runs in two threads at once") {
  const Restored engines{on_host::engines};
  const auto made = library_kernel(Convolution{some.options}, {some.x, some.w});
  std::atomic<int> inside = 0, most = 0;
  on_host::engines.running = [&] {
    most = std::max(most.load(), ++inside);
    std::this_thread::sleep_for(std::chrono::milliseconds{20});  // long enough for the other thread to come in, if it could
    --inside;
  };
  std::atomic<int> failed = 0;
  const auto twice = [&] {
    for (int times = 0; times < 2; ++times) try {
        run(*made, {some.x, some.w}, some.y());
      } catch (const DeviceError&) {
        ++failed;
      }
  };
  std::thread other{twice};
  twice();
  other.join();
  CHECK(most == 1);
  CHECK(failed == 0);
}

TEST_CASE("where a plain loop runs, stderr says once which convolution, why, and what helps") {
  const Restored engines{on_host::engines};
  const TemporaryFolder folder;
  on_host::engines.ranked = {engine(1, 1, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC})};
  const auto lines = [&](auto f) { return told(folder, f); };
  const ConvolutionCase c{{2, 4, 6, 5}, {6, 2, 3, 3}, {.stride = {2, 1}, .padding = {1, 1}, .groups = 2}};
  const auto all = [&](KernelChoice choice, DType dtype) {
    return lines([&] {
      for (int times = 0; times < 2; ++times)
        for_each_operation(c, [&](const auto& op, const std::vector<Shape>& shapes) { CHECK(library_kernel(op, shapes, choice, dtype) == nullptr); });
    });
  };
  const std::string options = "(stride=[2, 1], padding_low=[1, 1], padding_high=[1, 1], dilation=[1, 1], groups=2";
  const std::string slow = ") runs by a plain loop, which is many times slower than cuDNN: ", no_engine = "cuDNN has no engine for it on this GPU";
  const std::string why = no_engine + " that adds in one fixed order. Try numbers of channels that are multiples of 8, or allow more engines by --fastest-kernels\n";
  CHECK(all({}, DType::bfloat16) ==
        "replicator: convolution of bfloat16[2, 4, 6, 5] and bfloat16[6, 2, 3, 3] " + options + slow + why +
            "replicator: convolution_backward_data of bfloat16[2, 6, 3, 5] and bfloat16[6, 2, 3, 3] " + options + ", x=[2, 4, 6, 5]" + slow + why +
            "replicator: convolution_backward_weights of bfloat16[2, 4, 6, 5] and bfloat16[2, 6, 3, 5] " + options + ", w=[6, 2, 3, 3]" + slow + why);
  CHECK(all({}, DType::bfloat16).empty());
  CHECK_THAT(all({}, DType::float64), Catch::Contains(slow + "cuDNN is asked for float32 and bfloat16 only. Compute it in one of these\n"));
  on_host::engines.ranked.clear();
  CHECK_THAT(all({.fastest = true}, DType::bfloat16), Catch::Contains(slow + no_engine + ". Try numbers of channels that are multiples of 8, or another type\n"));
  const Shape large{1 << 12, 1 << 11, 16, 16};
  CHECK_THAT(lines([&] { CHECK(library_kernel(Convolution{}, {large, {1, 1 << 11, 1, 1}}) == nullptr); }),
             Catch::Contains("a tensor has 2^31 elements or more. Give each replica fewer images of a step\n"));
  CHECK(lines([&] { CHECK(library_kernel(Convolution{}, {{0, 3, 4, 4}, {2, 3, 1, 1}}) == nullptr); }).empty());  // nothing is computed
  on_host::engines = {};
  CHECK(lines([&] { CHECK(library_kernel(Convolution{c.options}, {c.x, c.w})); }).empty());
}
