// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <replicator/cpu/index.hpp>
#include <replicator/cpu/random.hpp>
#include <replicator/ops/sampling.hpp>

#include "../support/differences.hpp"
#include "../support/shapes.hpp"

namespace test_sampling {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;

namespace {

constexpr StepContext somewhere{.seed = 99, .step = 3, .replica = 1};
constexpr std::int64_t rows = 20000;
const std::vector<double> probabilities{0.1, 0.35, 0, 0.05, 0.5};

// The logits of the probabilities, not normalised, in every row.
template <Element T>
Array<T> logits_in_rows() {
  Array<T> x{{rows, 5}};
  for (std::int64_t i = 0; i < 5 * rows; ++i)
    x[i] = static_cast<T>(std::log(probabilities[static_cast<std::size_t>(i % 5)]) + 2);
  return x;
}

// sum (found - expected)^2 / expected over the classes that can occur; infinite if another one does.
double chi_square(const std::vector<double>& drawn) {
  std::vector<double> counts(5);
  for (const double value : drawn) counts.at(static_cast<std::size_t>(value)) += 1;
  double result = 0;
  for (std::size_t c = 0; c < 5; ++c) {
    const double expected = probabilities[c] * static_cast<double>(drawn.size());
    if (expected > 0)
      result += (counts[c] - expected) * (counts[c] - expected) / expected;
    else if (counts[c] > 0)
      return INFINITY;
  }
  return result;
}
constexpr double one_in_thousand = 16.27;  // quantile 0.999 of chi-square with 3 degrees of freedom

// The place of the largest of each row of 5.
std::vector<double> largest_in_rows(const std::vector<double>& x) {
  std::vector<double> result;
  for (std::size_t i = 0; i < x.size(); i += 5)
    result.push_back(static_cast<double>(
        std::max_element(x.begin() + static_cast<std::ptrdiff_t>(i), x.begin() + static_cast<std::ptrdiff_t>(i) + 5) -
        x.begin() - static_cast<std::ptrdiff_t>(i)));
  return result;
}

template <Element T>
std::vector<double> draw(const StepContext& context) {
  const auto x = logits_in_rows<T>();
  Graph graph;
  return doubles(evaluate(categorical(input(graph, x, 0)), std::vector{x.any()}, {.context = context}));
}

}  // namespace

TEST_CASE("Gumbel noise has the mean and the variance of the distribution, and its quantiles") {
  Graph graph;
  auto found = doubles(evaluate(gumbel<double>(graph, {200, 100}), {}, {.context = somewhere}));
  const auto n = static_cast<double>(found.size());
  const double mean = std::accumulate(found.begin(), found.end(), 0.0) / n;
  double variance = 0;
  for (const double value : found) variance += (value - mean) * (value - mean) / n;
  CHECK(mean == Approx(0.5772156649).margin(0.03));
  CHECK(variance == Approx(M_PI * M_PI / 6).epsilon(0.05));
  for (const double p : {0.01, 0.25, 0.5, 0.75, 0.99}) {
    const double quantile = -std::log(-std::log(p));
    CHECK(static_cast<double>(std::count_if(found.begin(), found.end(), [&](double v) { return v <= quantile; })) / n ==
          Approx(p).margin(0.012));
  }
}

TEST_CASE("Gumbel noise is finite for the least and the largest uniform number") {
  Graph graph;
  const auto noise = gumbel<float>(graph, {2});
  const auto& map = *graph.node(noise.any().value()).get<Compute>()->operation.get<Map>();
  const Array<float> ends{{2}, {0, 1 - 0x1p-24f}};
  const auto found = interpret(*map.expression, map.domain, std::vector{ends.any()})[0];
  CHECK(found[0] == Approx(-std::log(25 * std::log(2.0))));
  CHECK(found[1] == Approx(24 * std::log(2.0)));
}

TEST_CASE("categorical draws each class as often as its softmax says, and never one of minus infinity") {
  CHECK(chi_square(draw<float>(somewhere)) < one_in_thousand);
  CHECK(chi_square(draw<double>(somewhere)) < one_in_thousand);
}

TEST_CASE("categorical draws anew in each step and on each replica, and the same again for the same seed") {
  const auto base = draw<float>(somewhere);
  CHECK(draw<float>(somewhere) == base);
  for (const StepContext other : {StepContext{99, 4, 1}, StepContext{99, 3, 2}, StepContext{98, 3, 1}}) {
    const auto found = draw<float>(other);
    double equal = 0, expected = 0;
    for (std::size_t i = 0; i < base.size(); ++i) equal += found[i] == base[i] ? 1 : 0;
    for (const double p : probabilities) expected += p * p;  // of independent draws
    CHECK(equal / static_cast<double>(rows) == Approx(expected).margin(0.015));
  }
}

TEST_CASE("categorical along another axis draws from the columns") {
  Array<double> x{{2, 3}, {0, -INFINITY, 7, -INFINITY, 0, -INFINITY}};
  Graph graph;
  const auto found = categorical(input(graph, x, 0), 0);
  CHECK(found.shape() == Shape{3});
  CHECK(doubles(evaluate(found, std::vector{x.any()}, {.context = somewhere})) == std::vector<double>{0, 1, 0});
}

TEST_CASE("the largest of a Gumbel-softmax sample is a categorical sample, at any temperature") {
  const double temperature = GENERATE(0.1, 1.0, 5.0);
  const auto x = logits_in_rows<double>();
  Graph graph;
  const auto y = gumbel_softmax(input(graph, x, 0), {.temperature = temperature});
  const Value wanted[] = {y.any().value(), sum(y, {1}).any().value()};
  const auto found = evaluate(graph, wanted, std::vector{x.any()}, {.context = somewhere});
  CHECK(chi_square(largest_in_rows(doubles(found[0]))) < one_in_thousand);
  for (const double total : doubles(found[1])) REQUIRE(total == Approx(1));
}

TEST_CASE("a hard Gumbel-softmax sample is the one-hot of the soft one, with its gradient, along any axis") {
  CHECK(rc::check([] {
    const Shape shape = draw_shape(1, 4, 1, 4);
    const auto axis = *rc::gen::inRange<std::int64_t>(0, static_cast<std::int64_t>(shape.rank()));
    const auto x = random_array<double>(shape, 1), weight = random_array<double>(shape, 2);
    const auto sample = [&](bool hard) {
      Graph graph;
      const auto logits = input(graph, x, 0);
      const auto y = gumbel_softmax(logits, {.temperature = 0.7, .hard = hard, .axis = axis});
      const auto slope = gradient(y * constant(graph, weight), logits);
      const Value wanted[] = {y.any().value(), slope.any().value(), max(y, Axes{axis}.kept()).any().value()};
      return evaluate(graph, wanted, std::vector{x.any()}, {.context = somewhere});
    };
    const auto hard = sample(true), soft = sample(false);
    RC_ASSERT(doubles(hard[1]) == doubles(soft[1]));
    double ones = 0;
    for (const double value : doubles(hard[0])) {
      RC_ASSERT(value == 0 || value == 1);
      ones += value;
    }
    RC_ASSERT(ones == static_cast<double>(shape.elements() / shape[static_cast<std::size_t>(axis)]));
    // Where the hard sample is 1 the soft one is largest.
    for (std::size_t i = 0; i < doubles(hard[0]).size(); ++i) {
      if (doubles(hard[0])[i] == 0) continue;
      const auto& largest = doubles(soft[2]);
      RC_ASSERT(std::find(largest.begin(), largest.end(), doubles(soft[0])[i]) != largest.end());
    }
  }));
}

TEST_CASE("Gumbel-softmax agrees with finite differences to second order") {
  CHECK(rc::check([] {
    const Shape shape = draw_shape(1, 3, 1, 4);
    const auto axis = *rc::gen::inRange<std::int64_t>(0, static_cast<std::int64_t>(shape.rank()));
    const Function f = [&](Graph&, std::span<const AnyTensor> in) {
      return gumbel_softmax(Tensor<double>{in[0]}, {.temperature = 1.3, .axis = axis}).any();
    };
    const auto x = random_array<double>(shape, 1).any();
    RC_ASSERT(gradient_error(f, {x}, 1, 1e-4, {.context = somewhere}) < 1e-6);
    RC_ASSERT(gradient_error(f, {x}, 2, 1e-4, {.context = somewhere}) < 1e-5);
  }));
}

TEST_CASE("what cannot be drawn is refused at the user's line") {
  Graph graph;
  const Tensor<float> x{input(graph, {DType::float32, {4, 3}}, 0)};
  CHECK_THROWS_WITH(gumbel_softmax(x, {.temperature = 0}), Contains("gumbel_softmax at test_sampling.cpp:") &&
                                                               Contains("the temperature must be more than 0"));
  CHECK_THROWS_WITH(gumbel_softmax(x, {.axis = 2}), Contains("the axis 2 does not exist in the shape [4, 3]"));
  CHECK_THROWS_WITH(categorical(x, 2), Contains("argmax at test_sampling.cpp:") && Contains("asked for axis 2"));
}

}  // namespace test_sampling
