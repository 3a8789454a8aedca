// SPDX-License-Identifier: Apache-2.0
// Adam in one loop has the bits of the loops over tiles.
#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "elementwise_cases.hpp"

#include <replicator/cpu/adam_update.hpp>
#include <replicator/cpu/map.hpp>
#include <replicator/graph/map_gradient.hpp>
#include <replicator/graph/passes/expand.hpp>
#include <replicator/graph/passes/fuse.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/clip.hpp>
#include <replicator/ops/reduce.hpp>

namespace test_adam_update {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

std::unique_ptr<Executable> make(std::unique_ptr<Executable> (*maker)(const KernelRequest&), const AnyOperation& operation, std::int64_t n, int threads = 1) {
  const TensorType tensor{DType::float32, {n}}, scalar{DType::float32, {}};
  const std::vector<TensorType> in{tensor, tensor, scalar, scalar, scalar, tensor, tensor};
  const auto out = operation.infer_shape(in);
  const std::vector<Layout> offered(in.size());
  return maker({operation, in, out, offered, threads});
}

// The Map of its formula.
Map map_of(const AdamUpdate& update, std::int64_t n) {
  return {adam_expression(DType::float32, update.constants, 0, update.decays), {n}, {3, DType::float32}};
}

// How often each operation updates the variable in a step of this optimizer.
struct Updates {
  int adam = 0, map = 0;
};
template <class Optimizer>
Updates updates_of(const Optimizer& optimizer, DType dtype = DType::float32, std::optional<DeviceKind> kind = DeviceKind::cpu) {
  Graph graph;
  ReplicaContext replica{graph};
  const auto step = [&]<class T>() {
    const auto w = replica.variable<T>("w", {3, 40}, Initializer::zeros());
    optimizer.minimize(replica, sum(w.read() * w.read()));
  };
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>) step.template operator()<T>();
  });
  Updates found;
  const Graph fused = passes::fuse(passes::expand(graph, kind));
  for (const auto& node : fused.nodes()) {
    found.adam += operation_of<AdamUpdate>(node) != nullptr;
    if (const auto* map = operation_of<Map>(node)) found.map += map->dtypes.size() == 3 && map->domain.rank() == 2;
  }
  return found;
}

using Values = std::vector<std::vector<float>>;

// p, gradient, kept, rate, factor, first, second (which is not negative)
Values random_values(std::int64_t n, std::uint64_t seed) {
  PhiloxStream random{seed, 0};
  const auto some = [&](std::int64_t count, float low, float high) {
    std::vector<float> result;
    for (std::int64_t i = 0; i < count; ++i) result.push_back(low + (high - low) * random.uniform());
    return result;
  };
  return {some(n, -2, 2), some(n, -3, 3), some(1, 0.5f, 1), some(1, 0, 0.1f), some(1, 1, 9), some(n, -1, 1), some(n, 0, 1)};
}

// (p, first, second); in place: written where the kernel says that the old values may lie.
Values run(const Executable& e, Values in, std::int64_t n, bool in_place) {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  Values out(3, std::vector<float>(static_cast<std::size_t>(n)));
  for (auto& each : in) inputs.push_back(reinterpret_cast<const std::byte*>(each.data()));
  for (std::size_t o = 0; o < 3; ++o) outputs.push_back(reinterpret_cast<std::byte*>(in_place ? in[static_cast<std::size_t>(e.in_place[o])].data() : out[o].data()));
  const auto scratch = replicator::detail::aligned_bytes(e.scratch_bytes + 1);
  e.run({inputs.data(), outputs.data(), scratch.get(), {}, nullptr});
  if (in_place)
    for (std::size_t o = 0; o < 3; ++o) out[o] = in[static_cast<std::size_t>(e.in_place[o])];
  return out;
}

bool same_bits(const Values& a, const Values& b) {
  for (std::size_t o = 0; o < a.size(); ++o)
    if (std::memcmp(a[o].data(), b[o].data(), a[o].size() * sizeof(float)) != 0) return false;
  return true;
}

}  // namespace

TEST_CASE("Adam in one loop gives the bits of the recorded expression, in place, on any number of threads and any level of instructions") {
  CHECK(rc::check([] {
    const std::int64_t n = *rc::gen::element<std::int64_t>(1, 15, 16, 17, 100, 1000, 4096, 33000, 65536);
    const double beta1 = draw(0, 99) / 100.0, beta2 = draw(0, 99) / 100.0, epsilon = draw(1, 9) * 1e-7;
    const AdamUpdate update{{beta1, 1 - beta1, beta2, 1 - beta2, epsilon}, draw(0, 1) == 1};
    const Values values = random_values(n, static_cast<std::uint64_t>(draw(0, 1 << 30)));
    const Values expected = run(*make(&cpu::make_map, map_of(update, n), n), values, n, false);
    const auto one = make(&cpu::make_adam_update, update, n), two = make(&cpu::make_adam_update, update, n, 2);
    RC_ASSERT(same_bits(run(*one, values, n, false), expected));
    RC_ASSERT(same_bits(run(*one, values, n, true), expected));
    RC_ASSERT(same_bits(run(*two, values, n, true), expected));
  }));
  const std::int64_t n = 64;
  const AdamUpdate update{{0.9, 1 - 0.9, 0.999, 1 - 0.999, 1e-8}};
  const auto constants = cpu::detail::rounded(update.constants);
  const Values values = random_values(n, 1), expected = run(*make(&cpu::make_map, map_of(update, n), n), values, n, false);
  for (const auto level : {cpu::InstructionLevel::baseline, cpu::InstructionLevel::avx2, cpu::InstructionLevel::avx512}) {
    if (level > cpu::instruction_level()) continue;
    Values in = values;
    const cpu::detail::AdamTensors tensors{in[0].data(), in[1].data(), in[5].data(), in[6].data(), in[0].data(), in[5].data(), in[6].data(), in[2][0], in[3][0], in[4][0]};
    cpu::detail::adam_loop_of<false>(level)(tensors, constants, n);
    CHECK(same_bits({in[0], in[5], in[6]}, expected));
  }
}

TEST_CASE("a float32 variable is updated by one AdamUpdate; other formulas and types are updated by a Map") {
  CHECK(updates_of(nn::adam({})).adam == 1);
  CHECK(updates_of(nn::adamw({})).adam == 1);
  CHECK(updates_of(nn::adam({})).map == 0);
  const auto decay_in_the_gradient = updates_of(nn::adam({.weight_decay = 0.1}));
  CHECK((decay_in_the_gradient.adam == 0 && decay_in_the_gradient.map == 1));
  for (const DType dtype : {DType::float64, DType::bfloat16}) CHECK((updates_of(nn::adam({}), dtype).adam == 0 && updates_of(nn::adam({}), dtype).map == 1));
}

TEST_CASE("a device without the kernel runs the Map of the formula") {
  const auto on_gpu = updates_of(nn::adam({}), DType::float32, DeviceKind::cuda);
  CHECK((on_gpu.adam == 0 && on_gpu.map == 1));
}

TEST_CASE("a gradient that is clipped before it costs a pass of its own, and Adam stays one loop") {
  CHECK(updates_of(nn::clipped(nn::adam({}), 1.0)).adam == 1);
}

TEST_CASE("inputs of other types or shapes are refused") {
  const AnyOperation update{AdamUpdate{}};
  const TensorType tensor{DType::float32, {3}}, scalar{DType::float32, {}};
  std::vector<TensorType> in{tensor, tensor, scalar, scalar, scalar, tensor, tensor};
  CHECK(update.infer_shape(in) == std::vector<TensorType>{3, tensor});
  in[3] = tensor;
  CHECK_THROWS_WITH(update.infer_shape(in), "input 3 is float32[3]: it must be float32[]");
  in[3] = scalar;
  in[5] = {DType::float64, {3}};
  CHECK_THROWS_WITH(update.infer_shape(in), "input 5 is float64[3]: it must be float32[3]");
}

}  // namespace test_adam_update
