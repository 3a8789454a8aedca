// SPDX-License-Identifier: Apache-2.0
// Numbers in a step reach 64-bit elements without rounding.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <replicator/replicator.hpp>

#include "../replicate/deployments.hpp"

namespace test_number {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::on_devices;

namespace {

using Longs = Array<std::int64_t>;

constexpr std::int64_t odd = 9007199254740993;  // 2^53 + 1: no double
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max(), smallest = std::numeric_limits<std::int64_t>::min();

// What f(replica, x) gives for x = {1}.
template <class T, class F>
std::vector<T> values_of(F f) {
  Replicator replicator{on_devices(1, 1)};
  auto train = replicator.replicate(
      [](const InputContext&) { return data::from_generator([] { return Array<T>{{1}, {T{1}}}; }); },
      [&](ReplicaContext& replica, Tensor<T> x) { return f(replica, x); });
  const auto [result] = train.step();
  return std::vector<T>(result[0].begin(), result[0].end());
}
template <class F>
std::int64_t of_one(F f) {
  return values_of<std::int64_t>([&](ReplicaContext&, Tensor<std::int64_t> x) { return f(x); }).at(0);
}

}  // namespace

TEST_CASE("an int64 beside a tensor is not rounded by any operator, on either side") {
  CHECK(of_one([](auto x) { return x * odd; }) == odd);
  CHECK(of_one([](auto x) { return odd * x; }) == odd);
  CHECK(of_one([](auto x) { return x + odd; }) == odd + 1);
  CHECK(of_one([](auto x) { return odd + x; }) == odd + 1);
  CHECK(of_one([](auto x) { return x - odd; }) == 1 - odd);
  CHECK(of_one([](auto x) { return odd - x; }) == odd - 1);
  CHECK(of_one([](auto x) { return odd / x; }) == odd);
  CHECK(of_one([](auto x) { return (x * odd) / odd; }) == 1);
  CHECK(of_one([](auto x) { return x * largest; }) == largest);
  CHECK(of_one([](auto x) { return smallest * x; }) == smallest);
}

TEST_CASE("map's functors take numbers of 64 bits") {
  CHECK(of_one([](auto x) { return map([](Symbol a) { return a * odd; }, x); }) == odd);
  CHECK(of_one([](auto x) { return map([](Symbol a) { return odd - a; }, x); }) == odd - 1);
  CHECK(of_one([](auto x) { return map([](Symbol a) { return select(a == 1, odd, largest); }, x); }) == odd);
  CHECK(of_one([](auto x) { return map([](Symbol a) { return select(a == odd, a, largest); }, x); }) == largest);
  CHECK(of_one([](auto x) { return map([](Symbol a) { return max(a, odd); }, x); }) == odd);
  CHECK(of_one([](auto x) { return map([](Symbol a) { return select(a * odd < odd - 1, 1, 0); }, x); }) == 0);
  CHECK(of_one([](auto x) { return map([](Symbol a) { return a + a.number(odd); }, x); }) == odd + 1);
}

TEST_CASE("numbers of a functor on integers that are no such integers are refused") {
  const auto refused = Catch::Contains(", which is of a floating type or beyond int64");
  CHECK_THROWS_WITH(of_one([](auto x) { return map([](Symbol a) { return a * 2.0; }, x); }),
                    Catch::Contains("map at test_number.cpp:") && Catch::Contains(": the functor works on int64, and has the number 2, which is of a floating type"));
  CHECK_THROWS_WITH(of_one([](auto x) { return map([](Symbol a) { return a * 1e300; }, x); }), refused);
  CHECK_THROWS_WITH(of_one([](auto x) { return map([](Symbol a) { return a * std::nan(""); }, x); }), refused);
  CHECK_THROWS_WITH(of_one([](auto x) { return map([](Symbol a) { return a * std::numeric_limits<std::uint64_t>::max(); }, x); }), refused);
}

TEST_CASE("an unsigned number beyond int64 is no negative one to floats") {
  const auto y = values_of<double>([](ReplicaContext&, Tensor<double> x) {
    return map([](Symbol a) { return a * std::numeric_limits<std::uint64_t>::max(); }, x);
  });
  CHECK(y == std::vector{0x1p64});
}

TEST_CASE("full, pad and constants keep all bits of an int64") {
  using Context = ReplicaContext&;
  CHECK(values_of<std::int64_t>([](Context r, auto) { return full<std::int64_t>(r, {2}, odd); }) == std::vector{odd, odd});
  CHECK(values_of<std::int64_t>([](Context r, auto) { return full<std::int64_t>(r, {}, largest); }) == std::vector{largest});
  CHECK(values_of<std::int64_t>([](Context, auto x) { return pad(x, {1}, {1}, odd); }) == std::vector{odd, std::int64_t{1}, odd});
  CHECK(values_of<std::int64_t>([](Context r, auto) { return constant(r, Longs{{2}, {odd, smallest}}); }) == std::vector{odd, smallest});
}

TEST_CASE("a variable begins with all bits of its number") {
  const auto first = [](Initializer initializer) {
    return values_of<std::int64_t>(
        [&](ReplicaContext& replica, auto) { return replica.variable<std::int64_t>("ids", {2}, initializer).read(); });
  };
  CHECK(first(Initializer::constant(odd)) == std::vector{odd, odd});
  CHECK(first(Initializer::constant(largest)) == std::vector{largest, largest});
  CHECK(first(Initializer::constant(-3)) == std::vector<std::int64_t>{-3, -3});
  CHECK(first(Initializer::constant(2.75)) == std::vector<std::int64_t>{2, 2});
}

TEST_CASE("narrow elements and fractions take numbers as they did") {
  CHECK(values_of<std::int32_t>([](ReplicaContext&, auto x) { return 7 - x; }) == std::vector{6});
  CHECK(values_of<std::uint8_t>([](ReplicaContext& r, auto) { return full<std::uint8_t>(r, {1}, 200); }) == std::vector<std::uint8_t>{200});
  CHECK(values_of<float>([](ReplicaContext&, auto x) { return map([](Symbol a) { return max(a / 4, 1) * 3; }, x); }) == std::vector{3.0f});
  CHECK(values_of<bool>([](ReplicaContext& r, auto) { return full<bool>(r, {1}, true); }) == std::vector{true});
  CHECK(values_of<float>([](ReplicaContext&, auto x) { return x * -0.0f; }) == std::vector{-0.0f});
  CHECK(std::signbit(values_of<float>([](ReplicaContext& r, auto) { return full<float>(r, {1}, -0.0f); })[0]));
}

TEST_CASE("the text of an operation shows the number as it was written") {
  Graph graph;
  const Tensor<std::int64_t> x{graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::int64, {1}}}, {}, {}}))};
  const auto y = x * odd;
  CHECK(graph.node(y.any().value().node).get<Compute>()->operation.get<Map>()->expression->text() == "mul(x0, 9007199254740993)");
}

}  // namespace test_number
