// SPDX-License-Identifier: Apache-2.0
// Adam in one loop has the bits of the loops over tiles.
#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "elementwise_cases.hpp"

#include <replicator/cpu/adam_map.hpp>
#include <replicator/graph/map_gradient.hpp>

namespace test_adam_map {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

const AdamConstants<double> usual{0.9, 1 - 0.9, 0.999, 1 - 0.999, 1e-8};

struct Case {
  Shape shape;
  Expression expression;
  DType scalars = DType::float32;

  std::vector<TensorType> inputs() const {
    const TensorType tensor{DType::float32, shape}, scalar{scalars, {}};
    return {tensor, tensor, scalar, scalar, scalar, tensor, tensor};
  }
  std::unique_ptr<Executable> make(std::unique_ptr<Executable> (*maker)(const KernelRequest&), int threads = 1) const {
    const Map map{std::make_shared<Expression>(expression), shape, {DType::float32, DType::float32, DType::float32}};
    const AnyOperation operation{map};
    const auto in = inputs(), out = map.infer_shape(in);
    const std::vector<Layout> offered(in.size());
    return maker({operation, in, out, offered, threads});
  }
};

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

TEST_CASE("Adam in one loop gives the bits of the loops over tiles, in place, on any number of threads and any level of instructions") {
  CHECK(rc::check([] {
    const std::int64_t n = *rc::gen::element<std::int64_t>(1, 15, 16, 17, 100, 1000, 4096, 33000, 65536);
    const bool decays = draw(0, 1) == 1;
    const Case c{{n}, cpu::detail::adam_expression({draw(0, 99) / 100.0, draw(1, 99) / 100.0, draw(0, 99) / 100.0, draw(1, 99) / 100.0, 1e-6}, decays)};
    const Values values = random_values(n, static_cast<std::uint64_t>(draw(0, 1 << 30)));
    const Values expected = run(*c.make(&cpu::make_map), values, n, false);
    const auto one = c.make(&cpu::make_adam_map), two = c.make(&cpu::make_adam_map, 2);
    RC_ASSERT(one != nullptr);
    RC_ASSERT(same_bits(run(*one, values, n, false), expected));
    RC_ASSERT(same_bits(run(*one, values, n, true), expected));
    RC_ASSERT(same_bits(run(*two, values, n, true), expected));
  }));
  const std::int64_t n = 64;
  const Case c{{n}, cpu::detail::adam_expression(usual, false)};
  const Values values = random_values(n, 1), expected = run(*c.make(&cpu::make_map), values, n, false);
  for (const auto level : {cpu::InstructionLevel::baseline, cpu::InstructionLevel::avx2, cpu::InstructionLevel::avx512}) {
    if (level > cpu::instruction_level()) continue;
    Values in = values;
    const cpu::detail::AdamTensors tensors{in[0].data(), in[1].data(), in[5].data(), in[6].data(), in[0].data(), in[5].data(), in[6].data(), in[2][0], in[3][0], in[4][0]};
    cpu::detail::adam_loop_of<false>(level)(tensors, {0.9f, static_cast<float>(usual.rest1), 0.999f, static_cast<float>(usual.rest2), 1e-8f}, n);
    CHECK(same_bits({in[0], in[5], in[6]}, expected));
  }
}

TEST_CASE("what is not Adam's formula of float32 tensors of one shape is left to the loops over tiles") {
  const auto taken = [](const Case& c) { return c.make(&cpu::make_adam_map) != nullptr; };
  const Case adam{{3, 40}, cpu::detail::adam_expression(usual, false)};
  CHECK(taken(adam));
  CHECK(taken({{3, 40}, cpu::detail::adam_expression(usual, true)}));

  CHECK_FALSE(taken({{3, 40}, adam.expression, DType::float64}));
  Case changed = adam;
  changed.expression.outputs = {adam.expression.outputs[0], adam.expression.outputs[2], adam.expression.outputs[1]};
  CHECK_FALSE(taken(changed));
  changed = adam;
  for (auto& i : changed.expression.code)
    if (i.op == ScalarOp::square_root) i.op = ScalarOp::absolute;
  CHECK_FALSE(taken(changed));
  // A moment that is stored with another constant than the weight is computed with.
  changed = adam;
  Expression& e = changed.expression;
  const auto other = e.apply(ScalarOp::add, e.apply(ScalarOp::multiply, e.constant(0.8), e.input(5)),
                             e.apply(ScalarOp::multiply, e.constant(usual.rest1), e.input(1)));
  e.outputs[1] = other;
  CHECK_FALSE(taken(changed));
}

}  // namespace test_adam_map
