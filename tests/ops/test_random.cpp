// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include <replicator/cpu/random.hpp>

#include "../support/differences.hpp"

namespace test_random {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

constexpr StepContext somewhere{.seed = 0x123456789ABCDEF0u, .step = 0x500000007u, .replica = 3};

std::vector<double> draw(Distribution distribution, DType dtype, const Shape& shape, std::uint32_t trace_index = 9,
                         const StepContext& context = somewhere) {
  const TensorType type{dtype, shape};
  return doubles(
      array_of(run_kernel(Random{distribution, type, trace_index}, {}, {&type, 1}, {.context = context})[0]));
}

PhiloxCounter block_of(std::uint32_t block, std::uint32_t trace_index = 9) {
  return philox({block, 7, 3, trace_index ^ (5 * 0x9E3779B9u)}, {0x9ABCDEF0u, 0x12345678u});
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Moments m;
  m.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  m.variance = std::accumulate(values.begin(), values.end(), 0.0,
                               [&](double sum, double v) { return sum + (v - m.mean) * (v - m.mean); }) /
               n;
  return m;
}

}  // namespace

TEST_CASE("element i of a uniform tensor is word i % 4 of Philox block i / 4") {
  for (const std::int64_t n : {1, 63, 64, 65, 1000}) {
    const auto found = draw(Distribution::uniform, DType::float32, {n});
    for (std::size_t i = 0; i < found.size(); ++i)
      REQUIRE(found[i] == static_cast<double>(block_of(static_cast<std::uint32_t>(i / 4))[i % 4] >> 8) * 0x1p-24);
  }
}

TEST_CASE("element i of a uniform float64 tensor is made of two words of Philox block i / 2") {
  const auto found = draw(Distribution::uniform, DType::float64, {101});
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto block = block_of(static_cast<std::uint32_t>(i / 2));
    const std::uint64_t bits = (std::uint64_t{block[i % 2 * 2]} << 32) | block[i % 2 * 2 + 1];
    REQUIRE(found[i] == static_cast<double>(bits >> 11) * 0x1p-53);
  }
}

TEST_CASE("normal numbers are those of Box and Muller") {
  const auto single = draw(Distribution::normal, DType::float32, {1001});
  const auto twofold = draw(Distribution::normal, DType::float64, {1001});
  for (std::size_t i = 0; i < single.size(); ++i) {
    const auto pair = [&](double u, double v, std::size_t k) {
      const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * M_PI * v;
      return k % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
    };
    const auto block = block_of(static_cast<std::uint32_t>(i / 4));
    const std::size_t p = i % 4 / 2 * 2;
    REQUIRE(single[i] ==
            Approx(pair(((block[p] >> 8) + 1) * 0x1p-24, (block[p + 1] >> 8) * 0x1p-24, i)).margin(3e-6).epsilon(3e-6));
    const auto wide = block_of(static_cast<std::uint32_t>(i / 2));
    const auto whole = [&](std::size_t k) {
      return static_cast<double>(((std::uint64_t{wide[k]} << 32) | wide[k + 1]) >> 11);
    };
    REQUIRE(twofold[i] == Approx(pair((whole(0) + 1) * 0x1p-53, whole(2) * 0x1p-53, i)).margin(1e-14).epsilon(1e-14));
  }
}

TEST_CASE("the bits do not depend on the shape or on the instruction level") {
  const auto flat = draw(Distribution::normal, DType::float32, {12 * 31});
  CHECK(draw(Distribution::normal, DType::float32, {4, 3, 31}) == flat);
  std::vector<float> baseline(flat.size()), best(flat.size());
  cpu::detail::random_baseline<Distribution::normal, float>({1, 2, 3, 4}, {5, 6}, baseline.data(),
                                                            static_cast<std::int64_t>(flat.size()));
  cpu::detail::random_loop<Distribution::normal, float>()({1, 2, 3, 4}, {5, 6}, best.data(),
                                                          static_cast<std::int64_t>(flat.size()));
  CHECK(std::memcmp(baseline.data(), best.data(), 4 * flat.size()) == 0);
}

TEST_CASE("seed, step, replica and node each change the numbers") {
  const auto base = draw(Distribution::uniform, DType::float32, {64});
  auto other = somewhere;
  other.seed ^= std::uint64_t{1} << 40;
  CHECK(draw(Distribution::uniform, DType::float32, {64}, 9, other) != base);
  other = somewhere;
  other.step += std::uint64_t{1} << 32;
  CHECK(draw(Distribution::uniform, DType::float32, {64}, 9, other) != base);
  other = somewhere;
  ++other.step;
  CHECK(draw(Distribution::uniform, DType::float32, {64}, 9, other) != base);
  other = somewhere;
  ++other.replica;
  CHECK(draw(Distribution::uniform, DType::float32, {64}, 9, other) != base);
  CHECK(draw(Distribution::uniform, DType::float32, {64}, 10) != base);
  CHECK(draw(Distribution::uniform, DType::float32, {64}) == base);
}

TEST_CASE("a stream stands in the place of the trace index, and a fixed replica in the place of the one that draws") {
  Graph graph{0, 8};
  const auto options = EvaluateOptions{.context = somewhere};
  const auto word = [](std::uint32_t replica, std::uint32_t trace_index) {
    return static_cast<double>(philox({0, 7, replica, trace_index ^ (5 * 0x9E3779B9u)}, {0x9ABCDEF0u, 0x12345678u})[0] >> 8) * 0x1p-24;
  };
  const auto own = uniform(graph, {1}), stream = uniform(graph, {1}, 0.0f, 1.0f, {.stream = 5});
  const auto other = uniform(graph, {1}, 0.0f, 1.0f, {.stream = 5, .of_replica = 6});
  CHECK(doubles(evaluate(own, {}, options))[0] == word(3, 0));
  CHECK(doubles(evaluate(stream, {}, options))[0] == word(3, (1u << 31) + 5));
  CHECK(doubles(evaluate(other, {}, options))[0] == word(6, (1u << 31) + 5));
}

TEST_CASE("two random nodes of a graph differ, and the trace gives the same ones again") {
  const auto trace = [] {
    Graph graph;
    const auto a = uniform(graph, {8}), b = uniform(graph, {8});
    return std::pair{doubles(evaluate(a, {})), doubles(evaluate(b, {}))};
  };
  const auto [a, b] = trace();
  CHECK(a != b);
  CHECK(trace() == std::pair{a, b});
}

TEST_CASE("uniform and normal have the moments that were asked for") {
  Graph graph;
  const auto u = moments(doubles(evaluate(uniform<double>(graph, {200, 100}, -1, 3), {})));
  CHECK(u.mean == Approx(1).margin(0.03));
  CHECK(u.variance == Approx(16.0 / 12).epsilon(0.03));
  const auto z = doubles(evaluate(normal(graph, {200, 100}, 5.0f, 2.0f), {}));
  CHECK(moments(z).mean == Approx(5).margin(0.05));
  CHECK(moments(z).variance == Approx(4).epsilon(0.05));
  CHECK(std::count_if(z.begin(), z.end(), [](double v) { return std::abs(v - 5) < 2; }) ==
        Approx(0.6827 * 20000).epsilon(0.02));
}

TEST_CASE("bounds in the wrong order and a negative deviation are refused at the user's line") {
  Graph graph;
  const auto at = "replica 0: random numbers at test_random.cpp:" + std::to_string(__LINE__ + 1) + ": asked for ";
  CHECK_THROWS_WITH(uniform(graph, {2}, 2.0f, 1.0f), at + "uniform ones from 2 to 1: both bounds must be finite, the lower one first");
  CHECK_THROWS_WITH(uniform(graph, {2}, -3e38f, 3e38f), Catch::Contains("from -3e+38 to 3e+38: both bounds must be finite"));
  CHECK_THROWS_WITH(normal(graph, {2}, 0.0f, -1.0f), Catch::EndsWith("normal ones with mean 0 and standard deviation -1: both must be finite, the latter not negative"));
  CHECK_NOTHROW(uniform(graph, {2}, 1.0f, 1.0f));
  CHECK_NOTHROW(normal(graph, {2}, 1.0f, 0.0f));
}

TEST_CASE("dropout keeps the mean, and its gradient passes where an element was kept") {
  Graph graph;
  Array<double> ones{{10000}};
  std::fill(ones.begin(), ones.end(), 1);
  const auto x = input(graph, ones, 0);
  const auto y = dropout(x, 0.25);
  const AnyTensor wanted[] = {x};
  const auto slope = gradients(y, wanted, {})[0];
  const Value both[] = {y.any().value(), slope.value()};
  const auto found = evaluate(graph, both, std::vector{ones.any()});
  const auto values = doubles(found[0]);
  CHECK(moments(values).mean == Approx(1).margin(0.02));
  CHECK(std::count(values.begin(), values.end(), 0.0) == Approx(2500).epsilon(0.06));
  CHECK(std::all_of(values.begin(), values.end(), [](double v) { return v == 0 || v == 1 / 0.75; }));
  CHECK(doubles(found[1]) == values);
}

TEST_CASE("a rate of 0 leaves x alone, and 1 is refused") {
  Graph graph;
  const auto x = input(graph, Array<float>{{2}}, 0);
  CHECK(dropout(x, 0).any().value() == x.any().value());
  CHECK_THROWS_WITH(dropout(x, 1), Catch::Matchers::Contains("dropout at test_random.cpp:") &&
                                       Catch::Matchers::Contains("less than 1"));
}

TEST_CASE("random numbers are float32 unless said otherwise, whatever the type of the numbers that bound them") {
  Graph graph;
  CHECK(normal(graph, {2}, 0, 0.1).any().dtype() == DType::float32);
  CHECK(uniform(graph, {2}, -1, 1).any().dtype() == DType::float32);
  CHECK(uniform<double>(graph, {2}, -1, 1).any().dtype() == DType::float64);
}

TEST_CASE("random nodes vary between replicas, but not those of a fixed replica") {
  Graph graph;
  const auto varies = [](const Tensor<float>& x) { return x.graph().node(x.any().value()).get<Compute>()->operation.varies(); };
  CHECK(varies(uniform(graph, {2})));
  CHECK(varies(uniform(graph, {2}, 0.0f, 1.0f, {.stream = 1})));
  CHECK(!varies(uniform(graph, {2}, 0.0f, 1.0f, {.stream = 1, .of_replica = 0})));
}

}  // namespace test_random
