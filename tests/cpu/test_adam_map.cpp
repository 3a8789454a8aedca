// SPDX-License-Identifier: Apache-2.0
// Adam in one loop has the bits of the loops over tiles.
#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <vector>

#include "elementwise_cases.hpp"

#include <replicator/cpu/adam_map.hpp>
#include <replicator/graph/map_gradient.hpp>
#include <replicator/graph/passes/fuse.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/clip.hpp>
#include <replicator/ops/reduce.hpp>

namespace test_adam_map {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// The Map that the optimizer leaves for a variable of this shape.
Map map_of(const nn::Adam& optimizer, const Shape& shape) {
  Graph graph;
  ReplicaContext replica{graph};
  const auto w = replica.variable<float>("w", shape, Initializer::zeros());
  optimizer.minimize(replica, sum(w.read() * w.read()));
  const Map* found = nullptr;
  for (const auto& node : graph.nodes())
    if (const auto* map = operation_of<Map>(node); map && map->expression->inputs == 7) found = map;
  REQUIRE(found);
  return *found;
}

std::unique_ptr<Executable> make(std::unique_ptr<Executable> (*maker)(const KernelRequest&), const Map& map, int threads = 1, DType scalars = DType::float32) {
  const TensorType tensor{DType::float32, map.domain}, scalar{scalars, {}};
  const std::vector<TensorType> in{tensor, tensor, scalar, scalar, scalar, tensor, tensor};
  const AnyOperation operation{map};
  const auto out = map.infer_shape(in);
  const std::vector<Layout> offered(in.size());
  return maker({operation, in, out, offered, threads});
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
    const nn::Adam optimizer = draw(0, 1) ? nn::adamw({.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon}) : nn::adam({.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon});
    const Map map = map_of(optimizer, {n});
    const Values values = random_values(n, static_cast<std::uint64_t>(draw(0, 1 << 30)));
    const Values expected = run(*make(&cpu::make_map, map), values, n, false);
    const auto one = make(&cpu::make_adam_map, map), two = make(&cpu::make_adam_map, map, 2);
    RC_ASSERT(one != nullptr);
    RC_ASSERT(same_bits(run(*one, values, n, false), expected));
    RC_ASSERT(same_bits(run(*one, values, n, true), expected));
    RC_ASSERT(same_bits(run(*two, values, n, true), expected));
  }));
  const std::int64_t n = 64;
  const Map map = map_of(nn::adam({}), {n});
  const auto constants = cpu::detail::rounded(AdamFormula::of(map)->constants);
  const Values values = random_values(n, 1), expected = run(*make(&cpu::make_map, map), values, n, false);
  for (const auto level : {cpu::InstructionLevel::baseline, cpu::InstructionLevel::avx2, cpu::InstructionLevel::avx512}) {
    if (level > cpu::instruction_level()) continue;
    Values in = values;
    const cpu::detail::AdamTensors tensors{in[0].data(), in[1].data(), in[5].data(), in[6].data(), in[0].data(), in[5].data(), in[6].data(), in[2][0], in[3][0], in[4][0]};
    cpu::detail::adam_loop_of<false>(level)(tensors, constants, n);
    CHECK(same_bits({in[0], in[5], in[6]}, expected));
  }
}

TEST_CASE("what is not Adam's formula of float32 tensors of one shape is left to the loops over tiles") {
  const auto taken = [](const Map& map, DType scalars = DType::float32) { return make(&cpu::make_adam_map, map, 1, scalars) != nullptr; };
  const Map adam = map_of(nn::adam({}), {3, 40});
  CHECK(taken(adam));
  CHECK(taken(map_of(nn::adamw({}), {3, 40})));
  CHECK_FALSE(taken(adam, DType::float64));
  CHECK_FALSE(taken(map_of(nn::adam({.weight_decay = 0.1}), {3, 40})));  // the decay is in the gradient: another formula
  CHECK_FALSE(taken({adam.expression, adam.domain, adam.dtypes}));
}

TEST_CASE("fusion leaves Adam's Map whole: a gradient that is clipped before it costs a pass of its own, and Adam stays one loop") {
  Graph graph;
  ReplicaContext replica{graph};
  const auto w = replica.variable<float>("w", {3, 40}, Initializer::zeros());
  nn::clipped(nn::adam({}), 1.0).minimize(replica, sum(w.read() * w.read()));
  const Graph fused = passes::fuse(graph);
  int whole = 0;
  for (const auto& node : fused.nodes())
    if (const auto* map = operation_of<Map>(node)) whole += AdamFormula::of(*map) && map->expression->inputs == 7;
  CHECK(whole == 1);
}

}  // namespace test_adam_map
