// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/loops/tile_terms.hpp>

namespace test_vector_math {

using namespace replicator;
using namespace replicator::detail;
namespace vm = replicator::detail::cpu::vector_math;

namespace {

// Units in the last place of the exact result.
template <class T>
double error_of(T got, long double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  const T nearest = static_cast<T>(want);
  if (got == nearest) return 0;
  if (std::isinf(nearest) || std::isinf(got)) return 1e9;
  int exponent;
  std::frexp(nearest, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  return static_cast<double>(std::abs((static_cast<long double>(got) - want) / std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits)));
}

// The largest error over 100,000 points between low and high, which are spread by magnitude where low > 0.
template <class T, class F, class G>
double worst(F f, G exact, double low, double high) {
  PhiloxStream random{1, 2};
  double result = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = (random.next() + random.uniform()) * 0x1p-32;
    const T x = static_cast<T>(low > 0 ? low * std::pow(high / low, u) : low + u * (high - low));
    result = std::max(result, error_of(f(x), exact(static_cast<long double>(x))));
  }
  return result;
}

template <class T>
const std::vector<T>& special_values() {
  using Limits = std::numeric_limits<T>;
  static const std::vector<T> values{0, -T(0), 1, -1, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), T(0.5), 2, -2, 3, -3, T(2.5),
                                     T(-0.5), Limits::denorm_min(), -Limits::denorm_min(), Limits::min() / 8, Limits::max(), Limits::lowest(),
                                     T(1e-30), T(1e30), T(-1e30), T(8388609), T(-8388609)};
  return values;
}

template <class T>
bool agrees(T got, T want) {
  return std::isnan(want) ? std::isnan(got) : std::signbit(got) == std::signbit(want) && error_of<T>(got, want) < 4;
}

}  // namespace

#define ERROR_BELOW(T, name, bound, low, high) \
  CHECK(worst<T>([](T x) { return vm::name(x); }, [](long double x) { return std::name(x); }, low, high) < (bound))

TEST_CASE("float functions are within one unit in the last place") {
  ERROR_BELOW(float, exp, 1, -87, 88);
  ERROR_BELOW(float, exp, 1, -104, -86);
  ERROR_BELOW(float, log, 1, 1e-44, 3e38);
  ERROR_BELOW(float, log, 1, 0.5, 2);
  ERROR_BELOW(float, tanh, 1, -10, 10);
  ERROR_BELOW(float, tanh, 1, 1e-10, 1);
  ERROR_BELOW(float, erf, 1, -5, 5);
  ERROR_BELOW(float, erf, 1, 1e-44, 1);
  ERROR_BELOW(float, sin, 1, -1e5, 1e5);
  ERROR_BELOW(float, sin, 1, 1e-10, 4);
  ERROR_BELOW(float, cos, 1, -1e5, 1e5);
}

TEST_CASE("exp of every kind of float is within one unit in the last place") {
  double worst = 0;
  float at = 0;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 1021) {  // a prime stride over all floats
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const double error = error_of(vm::exp(x), std::exp(static_cast<long double>(x)));
    if (error > worst) worst = error, at = x;
  }
  CAPTURE(at);
  CHECK(worst < 1);
  const float largest = 0x1.62e42ep6f;  // the largest number whose exp is finite
  CHECK(vm::exp(largest) == std::exp(largest));
  CHECK(vm::exp(std::nextafter(largest, 100.0f)) == std::numeric_limits<float>::infinity());
}

TEST_CASE("double functions are within one unit in the last place, tanh within three") {
  ERROR_BELOW(double, exp, 1, -745, 709.7);
  ERROR_BELOW(double, log, 1, 1e-320, 1e308);
  ERROR_BELOW(double, log, 1, 0.5, 2);
  ERROR_BELOW(double, tanh, 3, -20, 20);
  ERROR_BELOW(double, tanh, 3, 1e-10, 1);
  ERROR_BELOW(double, erf, 1, -7, 7);
  ERROR_BELOW(double, erf, 1, 1e-310, 1);
  ERROR_BELOW(double, sin, 1, -1e5, 1e5);
  ERROR_BELOW(double, sin, 1, 1e-10, 4);
  ERROR_BELOW(double, cos, 1, -1e5, 1e5);
}

TEMPLATE_TEST_CASE("power is within one unit in the last place", "", float, double) {
  PhiloxStream random{3, 4};
  const double reach = sizeof(TestType) == 4 ? 8 : 60;
  double result = 0;
  for (int i = 0; i < 100000; ++i) {
    const bool near_one = i % 2 != 0;
    const auto x = static_cast<TestType>(near_one ? 1 + 1e-3 * random.uniform() : std::exp(20.0 * random.uniform() - 10));
    const auto y = static_cast<TestType>((2 * random.uniform() - 1) * reach * (near_one ? 1e4 : 1));
    result = std::max(result, error_of(vm::pow(x, y), std::pow(static_cast<long double>(x), static_cast<long double>(y))));
  }
  CHECK(result < 1);
}

#define AGREES(name) \
  if (const bool same = agrees(vm::name(x), std::name(x)); !same) FAIL(#name " of " << x << ": " << vm::name(x))

TEMPLATE_TEST_CASE("zeros, infinities, NaN, denormals and negative arguments are those of the standard functions", "", float, double) {
  for (const TestType x : special_values<TestType>()) {
    AGREES(exp);
    AGREES(log);
    AGREES(tanh);
    AGREES(erf);
    AGREES(floor);
    if (std::abs(x) < 1e5 || !std::isfinite(x)) {
      AGREES(sin);
      AGREES(cos);
    }
    for (const TestType y : special_values<TestType>())
      if (!agrees(vm::pow(x, y), std::pow(x, y))) FAIL(x << " to the power " << y << ": " << vm::pow(x, y));
  }
}

TEMPLATE_TEST_CASE("every lane and every level without FMA gives the bits of the scalar function", "", float, double) {
  using T = TestType;
  constexpr std::int64_t n = 1024;
  alignas(64) static T x[n], y[n], out[n], baseline[n];
  PhiloxStream random{5, 6};
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<T>(std::exp(40.0 * random.uniform() - 20) * (random.below(2) ? 1 : -1));
    y[i] = static_cast<T>(20.0 * random.uniform() - 10);
  }
  const auto step = static_cast<std::int64_t>(cpu::tile_group * sizeof(T));
  const cpu::TileOperand a{reinterpret_cast<const std::byte*>(x), step}, b{reinterpret_cast<const std::byte*>(y), step};
  for (std::size_t op = 2; op < cpu::tile_ops; ++op) {
    if (!cpu::tile_loop(dtype_of<T>, static_cast<cpu::TileOp>(op), cpu::InstructionLevel::baseline)) continue;
    cpu::tile_loop(dtype_of<T>, static_cast<cpu::TileOp>(op), cpu::InstructionLevel::baseline)(baseline, a, b, a, n);
    const auto best = cpu::tile_loop(dtype_of<T>, static_cast<cpu::TileOp>(op), cpu::instruction_level());
    best(out, a, b, a, n);
    CAPTURE(op);
    CHECK(std::memcmp(out, baseline, sizeof(out)) == 0);
    for (std::int64_t shift = 16; shift < 64; shift += 16) {  // other groups, other alignment
      T moved[16];
      T unaligned[17];
      std::memcpy(unaligned + 1, x + shift, sizeof(moved));
      const cpu::TileOperand c{reinterpret_cast<const std::byte*>(unaligned + 1), step}, d{reinterpret_cast<const std::byte*>(y + shift), 0};
      best(moved, c, d, c, 16);
      CHECK(std::memcmp(moved, out + shift, sizeof(moved)) == 0);
    }
  }
}

TEST_CASE("a sigmoid and exp of a difference are one loop, with the bits of their operations") {
  using enum ScalarOp;
  constexpr std::size_t n = 256;
  static std::vector<std::vector<float>> inputs(2, std::vector<float>(n));
  PhiloxStream random{7, 8};
  for (auto& input : inputs)
    for (auto& x : input) x = static_cast<float>(60 * random.uniform() - 30);
  std::copy(special_values<float>().begin(), special_values<float>().end(), inputs[0].begin());
  const auto operand = [](const std::vector<float>& of) { return cpu::TileOperand{reinterpret_cast<const std::byte*>(of.data()), 64}; };
  const auto run = [&](cpu::TileOp op, const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c) {
    std::vector<float> result(n);
    cpu::tile_loop(DType::float32, op, cpu::instruction_level())(result.data(), operand(a), operand(b), operand(c), n);
    return result;
  };
  const auto check = [&](const Expression& e, cpu::TileOp whole) {
    std::vector<std::vector<float>> values;  // instruction by instruction
    for (const auto& f : e.code) {
      if (f.op == ScalarOp::input) values.push_back(inputs[f.a]);
      else if (f.op == ScalarOp::constant) values.emplace_back(n, static_cast<float>(std::bit_cast<double>(f.bits)));
      else values.push_back(run(static_cast<cpu::TileOp>(f.op), values[f.a], values[f.b], values[f.c]));
    }
    const auto term = cpu::tile_terms(e)[e.outputs[0]];
    REQUIRE(term.op == whole);
    const auto got = run(whole, values[term.operand[0]], values[term.operand[1]], values[term.operand[1]]);
    for (std::size_t i = 0; i < n; ++i) {
      const float want = values[e.outputs[0]][i];
      CAPTURE(inputs[0][i], got[i], want);
      CHECK(((std::isnan(got[i]) && std::isnan(want)) || std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(want)));
    }
  };
  Expression sigmoid;
  const auto x = sigmoid.input(0), one = sigmoid.constant(1);
  const auto z = sigmoid.apply(exponential, sigmoid.apply(negate, sigmoid.apply(absolute, x)));
  const auto part = sigmoid.apply(select, sigmoid.apply(less, x, sigmoid.constant(0)), z, one);
  sigmoid.outputs = {sigmoid.apply(divide, part, sigmoid.apply(add, one, z))};
  check(sigmoid, cpu::TileOp::sigmoid);
  sigmoid.outputs.push_back(z);  // another use of a part
  CHECK(cpu::tile_terms(sigmoid)[sigmoid.outputs[0]].op == static_cast<cpu::TileOp>(divide));

  Expression below;
  below.outputs = {below.apply(exponential, below.apply(subtract, below.input(0), below.input(1)))};
  check(below, cpu::TileOp::subtract_then_exponential);
}

}  // namespace test_vector_math
