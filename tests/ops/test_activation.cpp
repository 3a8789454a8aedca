// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include <replicator/cpu/map.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/activation.hpp>

#include "../support/differences.hpp"
#include "../support/shapes.hpp"

namespace test_activation {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

using Activation = Tensor<double> (*)(Tensor<double>);

struct Case {
  const char* name;
  Activation activation;
  double (*definition)(double);
  double slope_at_0;
};

const Case cases[] = {
    {"sigmoid", [](Tensor<double> x) { return sigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); }, 0.25},
    {"softplus", [](Tensor<double> x) { return softplus(x); },
     [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }, 0.5},
    {"log_sigmoid", [](Tensor<double> x) { return log_sigmoid(x); },
     [](double x) { return x > 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); }, 0.5},
    {"silu", [](Tensor<double> x) { return silu(x); }, [](double x) { return x / (1 + std::exp(-x)); }, 0.5},
    {"gelu", [](Tensor<double> x) { return gelu(x); },
     [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }, 0.5},
    {"exact gelu", [](Tensor<double> x) { return gelu(x, Gelu::exact); }, [](double x) { return x / 2 * std::erfc(-x * M_SQRT1_2); }, 0.5},
    {"relu6", [](Tensor<double> x) { return relu6(x); }, [](double x) { return std::clamp(x, 0.0, 6.0); }, 0},
    {"hardsigmoid", [](Tensor<double> x) { return hardsigmoid(x); }, [](double x) { return std::clamp(x + 3, 0.0, 6.0) / 6; }, 1.0 / 6},
    {"hardswish", [](Tensor<double> x) { return hardswish(x); }, [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }, 0.5},
    {"leaky_relu", [](Tensor<double> x) { return leaky_relu(x, 0.2); }, [](double x) { return x > 0 ? x : 0.2 * x; },
     0.2},
    {"elu", [](Tensor<double> x) { return elu(x, 1.5); }, [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); },
     1.5},
};

const Array<double> places{{11}, {-1000, -700, -40, -3, -1e-3, 0, 1e-3, 2, 50, 700, 1000}};

}  // namespace

TEST_CASE("activations are what their formulas say, far from zero too") {
  for (const auto& c : cases) {
    INFO(c.name);
    Graph graph;
    const auto found = doubles(evaluate(c.activation(input(graph, places, 0)), std::vector{places.any()}));
    for (std::int64_t i = 0; i < places.shape()[0]; ++i)
      CHECK(found[static_cast<std::size_t>(i)] == Approx(c.definition(places[i])).epsilon(1e-12).margin(1e-300));
  }
}

TEST_CASE("elu keeps the digits of small values, and so does its derivative far from zero") {
  const auto check = [](auto zero, double tolerance) {
    using T = decltype(zero);
    const Array<T> x{{7}, {T(-1e-30), T(-1e-6), T(-0.01), T(-0.4999), T(-0.5), T(-3), T(-20)}};
    Graph graph;
    const auto in = input(graph, x, 0);
    const auto y = elu(in, 1.5);
    const Value wanted[] = {y.any().value(), gradient(y, in).any().value()};
    const auto found = evaluate(graph, wanted, std::vector{x.any()});
    for (std::int64_t i = 0; i < 7; ++i) {
      const double z = x[i];
      CHECK(doubles(found[0])[static_cast<std::size_t>(i)] == Approx(1.5 * std::expm1(z)).epsilon(tolerance).margin(0));
      CHECK(doubles(found[1])[static_cast<std::size_t>(i)] == Approx(1.5 * std::exp(z)).epsilon(tolerance).margin(0));
    }
  };
  check(0.0f, 1e-6);
  check(0.0, 1e-14);
}

TEST_CASE("the kernels of float32 keep sigmoid and softplus to the last places, small values too") {
  Array<float> x{Shape{1001}};
  for (std::int64_t i = 0; i <= 1000; ++i) x[i] = static_cast<float>(i - 500) * 0.16f;  // from -80 to 80
  for (const bool soft : {false, true}) {
    Graph graph;
    const auto in = input(graph, x, 0);
    graph.results() = {(soft ? softplus(in) : sigmoid(in)).any().value()};
    const Graph expanded = passes::expand(graph);
    const auto& node = expanded.node(expanded.results()[0]);
    const auto results =
        run_kernel(node.get<Compute>()->operation, {held(x.any())}, node.outputs, {.highest = KernelTier::library});
    const auto found = doubles(array_of(results[0]));
    for (std::int64_t i = 0; i <= 1000; ++i) {
      const double z = x[i];
      const double expected = soft ? (z > 0 ? z : 0) + std::log1p(std::exp(-std::abs(z))) : 1 / (1 + std::exp(-z));
      REQUIRE(found[static_cast<std::size_t>(i)] == Approx(expected).epsilon(4e-7));
    }
  }
}

TEST_CASE("gelu lies within 5e-4 of x Phi(x)") {
  Array<double> x{Shape{2001}};
  for (std::int64_t i = 0; i <= 2000; ++i) x[i] = static_cast<double>(i - 1000) / 100;
  Graph graph;
  const auto found = doubles(evaluate(gelu(input(graph, x, 0)), std::vector{x.any()}));
  for (std::int64_t i = 0; i <= 2000; ++i)
    REQUIRE(std::abs(found[static_cast<std::size_t>(i)] - x[i] * std::erfc(-x[i] / std::sqrt(2)) / 2) < 5e-4);
}

TEST_CASE("activations agree with finite differences to second order") {
  for (const auto& c : cases) {
    INFO(c.name);
    const Function f = [&](Graph&, std::span<const AnyTensor> in) {
      return c.activation(Tensor<double>{in[0]} * 3.0).any();
    };
    CHECK(rc::check([&] {
      const auto x = random_array<double>(draw_shape(0, 3, 1, 4), 3).any();
      RC_ASSERT(gradient_error(f, {x}, 1) < 1e-6);
      RC_ASSERT(gradient_error(f, {x}, 2) < 1e-5);
    }));
  }
}

TEST_CASE("activations have their derivative at zero, and finite ones everywhere") {
  for (const auto& c : cases) {
    INFO(c.name);
    Graph graph;
    const auto x = input(graph, places, 0);
    const auto first = gradient(c.activation(x), x);
    const Value wanted[] = {first.any().value(), gradient(first, x).any().value()};
    const auto found = evaluate(graph, wanted, std::vector{places.any()});
    CHECK(doubles(found[0])[5] == Approx(c.slope_at_0).epsilon(1e-15));
    for (const auto& order : found)
      for (const double value : doubles(order)) CHECK(std::isfinite(value));
  }
}

TEST_CASE("the second derivative of softplus at zero is a quarter") {
  const Array<double> zero{Shape{}, {0}};
  Graph graph;
  const auto x = input(graph, zero, 0);
  CHECK(doubles(evaluate(gradient(gradient(softplus(x), x), x), std::vector{zero.any()}))[0] == 0.25);
}

TEST_CASE("the derivative of softplus is one pass over x") {
  Graph graph;
  const Tensor<float> x{input(graph, {DType::float32, {64, 64}}, 0)};
  graph.results() = {gradient(softplus(x), x).any().value()};
  const auto optimised = optimise(graph);
  int kernels = 0;
  for (const auto& node : optimised.nodes()) kernels += node.get<Compute>() ? 1 : 0;
  CHECK(kernels == 1);
}

}  // namespace test_activation
