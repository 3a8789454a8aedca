// SPDX-License-Identifier: Apache-2.0
// bfloat16 as an element type: how numbers are rounded to it, and how the engine computes with it.
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/cpu/loops/convert.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../replicate/deployments.hpp"

namespace test_element {

using namespace replicator;
using namespace replicator::detail;
using B = bfloat16;

namespace {

bfloat16 from(unsigned bits) { return bfloat16::from_bits(static_cast<std::uint16_t>(bits)); }

// The nearer of the two neighbours, of equally near ones the even one; by comparing distances.
float nearest(float value) {
  const auto low = std::bit_cast<std::uint32_t>(value) & 0xffff0000u;
  const auto below = static_cast<double>(std::bit_cast<float>(low));
  const bool last = (low & 0x7fff0000u) == 0x7f7f0000u;  // above the largest number lies what would be 2^128
  const double above = last ? std::copysign(0x1p128, value) : static_cast<double>(std::bit_cast<float>(low + 0x10000u));
  const double down = std::abs(value - below), up = std::abs(above - value);
  const bool even = (low >> 16 & 1) == 0;
  return static_cast<float>(down < up || (down == up && even) ? below : above);
}

Array<B> numbers(std::int64_t n, std::uint64_t seed) {
  PhiloxStream random{seed, 3};
  Array<B> result{{n}};
  for (auto& x : result) x = 4 * random.uniform() - 2;
  return result;
}

// Runs a step of one replica on the arrays.
template <class Step, class... T>
auto run(Step step, const Array<T>&... arrays) {
  Replicator repl{test::on_devices(1, 1)};
  return repl.replicate([=](const InputContext&) { return data::from_generator([=](std::int64_t) { return std::tuple{arrays...}; }); }, step)
      .step();
}

}  // namespace

TEST_CASE("every bfloat16 is a float and comes back as it was") {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = from(bits);
    const B back = value;
    if (std::isnan(value)) REQUIRE((std::isnan(static_cast<float>(back)) && back.bits == (bits | 0x40)));
    else REQUIRE(back.bits == bits);
  }
}

TEST_CASE("a float is rounded to the nearest bfloat16, ties to even, too large ones to infinity") {
  PhiloxStream random{5, 1};
  for (int i = 0; i < 200000; ++i) {
    auto bits = random.next();
    if (i % 4 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // a tie
    const float value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    REQUIRE(static_cast<float>(B{value}) == nearest(value));
  }
  CHECK(B{1 + 0x1p-8f}.bits == 0x3f80);
  CHECK(B{1 + 0x3p-8f}.bits == 0x3f82);
  CHECK(B{std::numeric_limits<float>::max()}.bits == 0x7f80);
  CHECK(B{-0.0f}.bits == 0x8000);
  CHECK(std::isnan(static_cast<float>(B{std::bit_cast<float>(0x7f800001u)})));
}

TEST_CASE("every instruction level rounds and widens to the same bits") {
  using namespace cpu;
  std::vector<float> from(4096);
  PhiloxStream random{8, 1};
  for (auto& x : from) x = std::bit_cast<float>(random.next());
  const auto n = static_cast<std::int64_t>(from.size());
  const auto run = [&](InstructionLevel level) {
    std::vector<B> narrow(from.size());
    std::vector<float> wide(from.size());
    const TileOperand a{reinterpret_cast<const std::byte*>(from.data()), 64}, b{reinterpret_cast<const std::byte*>(narrow.data()), 32};
    cpu::detail::widest_convert_loop<float, B>(level)(narrow.data(), a, a, a, n);
    cpu::detail::widest_convert_loop<B, float>(level)(wide.data(), b, b, b, n);
    return std::tuple{narrow, wide};
  };
  for (auto level = InstructionLevel::baseline; level <= instruction_level(); level = static_cast<InstructionLevel>(static_cast<int>(level) + 1)) {
    const auto [narrow, wide] = run(level);
    for (std::size_t i = 0; i < from.size(); ++i) {
      REQUIRE(narrow[i].bits == B{from[i]}.bits);
      REQUIRE(std::bit_cast<std::uint32_t>(wide[i]) == static_cast<std::uint32_t>(narrow[i].bits) << 16);
    }
  }
}

TEST_CASE("an expression of bfloat16 is computed in float32 and rounded once when it is stored, in every lane") {
  for (const std::int64_t n : {1, 15, 16, 17, 1000, 5003}) {
    const auto x = numbers(n, 1), y = numbers(n, 2);
    const auto [fused, twice, wide, back, whole] = run(
        [](ReplicaContext&, Tensor<B> a, Tensor<B> b) {
          const auto fused = map([](auto u, auto v) { return u * v + 0.3 * u; }, a, b);
          return std::tuple{fused, a * b + a, cast<float>(a) * 1.1f, cast<B>(cast<float>(a) * 1.1f), cast<std::int32_t>(a * B{10})};
        },
        x, y);
    for (std::int64_t i = 0; i < n; ++i) {
      const float u = x[i], v = y[i];
      const float product = u * v;
      REQUIRE(fused[0][i].bits == B{product + 0.3f * u}.bits);
      REQUIRE(twice[0][i].bits == B{B{product} + u}.bits);
      REQUIRE(wide[0][i] == u * 1.1f);
      REQUIRE(back[0][i].bits == B{u * 1.1f}.bits);
      REQUIRE(whole[0][i] == static_cast<std::int32_t>(static_cast<float>(B{10 * u})));
    }
  }
}

TEST_CASE("a sum of bfloat16 is that of floats, rounded once at its end") {
  const auto x = numbers(10000, 3);
  Array<float> same{{10000}};
  for (std::int64_t i = 0; i < x.size(); ++i) same[i] = x[i];
  const auto [narrow, wide, most] =
      run([](ReplicaContext&, Tensor<B> a, Tensor<float> b) { return std::tuple{sum(a), sum(b), max(a)}; }, x, same);
  CHECK(narrow[0].item().bits == B{wide[0].item()}.bits);
  float largest = -10;
  for (const float value : x) largest = std::max(largest, value);
  CHECK(most[0].item() == largest);
}

TEST_CASE("rows, scalars and comparisons of bfloat16 broadcast") {
  const auto [y, z] = run(
      [](ReplicaContext&, Tensor<B> a, Tensor<B> b) {
        return std::tuple{a * b, select(a < b, a, b) - 1.0f};
      },
      Array<B>{{2, 3}, {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}}, Array<B>{{3}, {3.0f, 2.5f, 0.5f}});
  const float products[] = {3, 5, 1.5, 12, 12.5, 3}, least[] = {0, 1, -0.5, 2, 1.5, -0.5};
  for (std::int64_t i = 0; i < 6; ++i) {
    CHECK(y[0][i] == products[i]);
    CHECK(z[0][i] == least[i]);
  }
}

TEST_CASE("gradients in bfloat16 are those in float32 within its precision") {
  const auto x = numbers(300, 4);
  const auto [narrow, wide] = run(
      [](ReplicaContext&, Tensor<B> a) {
        const auto f = [](auto t) { return sum(map([](auto v) { return tanh(v) * exp(0.5 * v) + v * v; }, t)); };
        const auto c = cast<float>(a);
        return std::tuple{gradients(f(a), std::vector{a})[0], gradients(f(c), std::vector{c})[0]};
      },
      x);
  for (std::int64_t i = 0; i < x.size(); ++i)
    CHECK(std::abs(narrow[0][i] - wide[0][i]) <= 0x1p-8f * std::abs(wide[0][i]) + 1e-6f);
}

}  // namespace test_element
