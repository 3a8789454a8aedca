// SPDX-License-Identifier: Apache-2.0
// A reduction with an epilogue has the bits of a reduction and of arithmetic behind it, in a launch of its own.
#include "device_run.hpp"

#include <cstring>

#include <replicator/graph/fused_reduce.hpp>
#include <replicator/replicator.hpp>

#include "small_images.hpp"
#include "without_kernels.hpp"

namespace test_cuda_fused_reductions {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// (x, y) -> x, x y
Expression two_sums(DType compute) {
  Expression e;
  e.compute = compute;
  e.inputs = 2;
  const auto x = e.input(0), y = e.input(1);
  e.outputs = {x, e.apply(ScalarOp::multiply, x, y)};
  return e;
}
// (a, b, vector, number) -> a, a / 7, (a / 7 + vector) b, number - b
Expression arithmetic(DType compute) {
  Expression e;
  e.compute = compute;
  e.inputs = 4;
  const auto a = e.input(0), b = e.input(1), vector = e.input(2), number = e.input(3), part = e.apply(ScalarOp::divide, a, e.constant(7));
  e.outputs = {a, part, e.apply(ScalarOp::multiply, e.apply(ScalarOp::add, part, vector), b), e.apply(ScalarOp::subtract, number, b)};
  return e;
}

void check_epilogue(const Shape& shape, std::int64_t axis, DType dtype, ReduceKind kind) {
  const DType compute = compute_type(dtype);
  const Reduce reduce{kind, std::make_shared<const Expression>(two_sums(compute)), {axis}, shape, {compute, compute}};
  const auto epilogue = std::make_shared<const Expression>(arithmetic(compute));
  const Shape results{shape[static_cast<std::size_t>(1 - axis)]}, reshaped{1, results[0]};
  const std::vector<DType> stored{dtype, compute, compute, dtype};
  const AnyArray x = random_values({dtype, shape}, 3), y = random_values({compute, shape}, 4), vector = random_values({compute, reshaped}, 5), number = random_values({dtype, {1}}, 6);
  const auto sums = run_kernel_on(DeviceKind::cuda, reduce, {x, y}, {.highest = KernelTier::reference});
  AnyArray flat{{compute, results}};
  std::memcpy(flat.data(), vector.data(), vector.size_bytes());
  const auto want = run_kernel_on(DeviceKind::cuda, Map{epilogue, results, stored}, {sums[0], sums[1], flat, number}, {.highest = KernelTier::reference});
  for (const auto tier : {KernelTier::reference, KernelTier::compiled}) {
    if (!kernels<FusedReduce>::slot[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(tier)].load()) continue;
    INFO(name_of(kind) << " of " << name_of(dtype) << shape.text() << " over axis " << axis << ", tier " << static_cast<int>(tier));
    const FusedReduce fused{reduce, epilogue, {results, reshaped, results, reshaped}, stored};
    const auto got = run_kernel_on(DeviceKind::cuda, fused, {x, y, vector, number}, {.highest = tier, .lowest = shape.elements() == 0 ? KernelTier::reference : tier});
    REQUIRE(got.size() == want.size());
    for (std::size_t o = 0; o < got.size(); ++o) {
      INFO("output " << o);
      REQUIRE(got[o].shape() == fused.shapes[o]);
      REQUIRE(std::memcmp(got[o].data(), want[o].data(), want[o].size_bytes()) == 0);
    }
  }
}

struct Outcome {
  std::string digest, plan;
};
// Batch norms over one replica and over both, and a softmax.
Outcome train(const char* devices, bool capture) {
  Replicator repl{two_replicas_on(devices, capture)};
  auto step = repl.replicate(small_images, [&](ReplicaContext& replica, Tensor<float> x) {
    const auto layer = [&](Tensor<float> in, const char* name, std::int64_t features, bool across) {
      return relu(nn::batch_norm(replica, nn::conv2d(replica, in, name, {.features = features, .kernel = {3, 3}, .padding = {1, 1}}), std::string{name} + "_norm", {.across_replicas = across}));
    };
    x = layer(layer(x, "first", 9, false), "second", 5, true);
    const auto loss = mean(pow(log_softmax(nn::linear(replica, global_average_pool(x), "last", {.features = 3})) - 1.0f, 2));
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  });
  for (int i = 0; i < 3; ++i) step.step();
  return {repl.digest(), step.plan_json()};
}

}  // namespace

TEST_CASE("an epilogue has the bits of arithmetic behind the reduction, in whatever way it reduces") {
  if (!gpu_is_here()) return;
  // Of each: a few elements, one block, several blocks; of rows, then of neighbouring columns.
  check_epilogue({3, 20}, 1, DType::float32, ReduceKind::sum);
  check_epilogue({3, 4000}, 1, DType::float32, ReduceKind::sum);
  check_epilogue({3, 9001}, 1, DType::float32, ReduceKind::sum);
  check_epilogue({20, 40}, 0, DType::float32, ReduceKind::sum);
  check_epilogue({4000, 40}, 0, DType::float32, ReduceKind::sum);
  check_epilogue({9001, 39}, 0, DType::float32, ReduceKind::sum);
  check_epilogue({9000, 1}, 0, DType::float32, ReduceKind::sum);
}

TEST_CASE("an epilogue takes every type and every kind of reduction") {
  if (!gpu_is_here()) return;
  for (const auto dtype : {DType::float64, DType::bfloat16, DType::int32, DType::int64}) {
    check_epilogue({3, 5000}, 1, dtype, ReduceKind::sum);
    check_epilogue({5000, 40}, 0, dtype, ReduceKind::sum);
  }
  for (const auto kind : {ReduceKind::min, ReduceKind::max}) check_epilogue({5000, 40}, 0, DType::float32, kind);
}

TEST_CASE("an epilogue of a sum of nothing") {
  if (!gpu_is_here()) return;
  check_epilogue({0, 5}, 0, DType::float32, ReduceKind::sum);
}

TEST_CASE("training has the same bits with epilogues of reductions and without, captured and not, on any placement") {
  if (!gpu_is_here()) return;
  const auto apart = [] {
    const WithoutKernels<FusedReduce> without;
    return train("cuda:0", true);
  }();
  CHECK_THAT(apart.plan, !Catch::Contains("fused_reduce"));
  for (const bool capture : {true, false}) {
    const auto fused = train("cuda:0", capture);
    CHECK(fused.digest == apart.digest);
    CHECK_THAT(fused.plan, Catch::Contains("fused_reduce"));
  }
  CHECK(train("cuda:0x2", true).digest == apart.digest);
}

}  // namespace test_cuda_fused_reductions
