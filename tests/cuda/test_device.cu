// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <replicator/cuda/device.cuh>
#include <replicator/cuda/expressions/parts.cuh>
#include <replicator/graph/map.hpp>
#include <replicator/ops/convolution.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/pooling.hpp>

using namespace replicator;
using namespace replicator::detail;

namespace {

// What require(index) throws; empty where it does not.
std::string refusal(int index) {
  try {
    support_of(DeviceKind::cuda).require(index);
    return {};
  } catch (const DeviceError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a GPU that is not there is refused with what is missing and how to mend it") {
  int count = 0;
  const std::string reason = replicator::detail::cuda::missing_driver(count);
  if (reason.empty()) {
    CHECK(refusal(0).empty());
    CHECK_THAT(refusal(count), Catch::Contains("cuda:" + std::to_string(count) + " was asked for, but this machine has " + std::to_string(count)));
  } else {
    CHECK(count == 0);
    CHECK_THAT(reason, Catch::Contains("(cudaGetDeviceCount: "));
    CHECK(refusal(3) == "cuda:3 was asked for, but " + reason + ": install NVIDIA's driver, or use cpu:0");
  }
}

// They are in a file of their own, which is linked beside this one.
TEST_CASE("the headers of CUDA fill the slots of the registry") {
  const auto filled = [](const KernelSlots& slots) { return slots[static_cast<std::size_t>(DeviceKind::cuda)][0].load() != nullptr; };
  CHECK(filled(kernels<Map>::slot));
  CHECK(filled(kernels<Reduce>::slot));
  CHECK(filled(kernels<Matmul>::slot));
  CHECK(filled(kernels<Convolution>::slot));
  CHECK(filled(kernels<MaxPoolSpread>::slot));
  CHECK_FALSE(support_of(DeviceKind::cuda).runs_on_host());
}

TEST_CASE("a failed call is told once, with its expression, name, text and line") {
  int calls = 0;
  const auto call = [&](cudaError_t result) { return ++calls, result; };
  CHECK_NOTHROW([&] { REPLICATOR_CUDA_CHECK(call(cudaSuccess)); }());
  CHECK_THROWS_WITH([&] { REPLICATOR_CUDA_CHECK(call(cudaErrorInvalidValue)); }(),
                    Catch::Contains("call(cudaErrorInvalidValue) at test_device.cu:") && Catch::Contains("cudaErrorInvalidValue: invalid argument"));
  CHECK(calls == 2);
}

TEST_CASE("what one output needs of an expression computes the same") {
  Expression whole;
  whole.inputs = 3;
  const auto a = whole.input(0);
  const auto b = whole.input(1);
  const auto c = whole.input(2);
  const auto product = whole.apply(ScalarOp::multiply, c, whole.constant(3));
  whole.outputs = {whole.apply(ScalarOp::subtract, product, a), whole.apply(ScalarOp::add, a, b), c};
  const auto first = replicator::detail::cuda::part_of(whole, 0), second = replicator::detail::cuda::part_of(whole, 1), third = replicator::detail::cuda::part_of(whole, 2);
  CHECK(first.expression.text() == "sub(mul(x1, 3), x0)");
  CHECK(first.inputs == std::vector<std::size_t>{0, 2});
  CHECK(second.expression.text() == "add(x0, x1)");
  CHECK(second.inputs == std::vector<std::size_t>{0, 1});
  CHECK(third.expression.text() == "x0");
  CHECK(third.inputs == std::vector<std::size_t>{2});
}

TEST_CASE("an expression that is too large for a launch is declined, not cut") {
  Expression e;
  e.inputs = 1;
  auto value = e.input(0);
  for (int i = 0; i < 300; ++i) value = e.apply(ScalarOp::add, value, e.input(0));
  e.outputs = {value};
  const replicator::detail::cuda::Operands operands{4, {4}, {{DType::float32, replicator::detail::cuda::OperandKind::linear, {1}}}};
  const DType dtypes[] = {DType::float32};
  CHECK_FALSE(replicator::detail::cuda::compile_scalar_program(e, operands, dtypes));
  e.code.resize(200);
  e.outputs = {199};
  const auto program = replicator::detail::cuda::compile_scalar_program(e, operands, dtypes);
  REQUIRE(program);
  CHECK(program->step_count == 200);
}
