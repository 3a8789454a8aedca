// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/graph/passes/optimise.hpp>
#include <replicator/nn/conv2d.hpp>
#include <replicator/nn/conv_transpose2d.hpp>
#include <replicator/nn/embedding.hpp>
#include <replicator/nn/linear.hpp>

#include "../support/differences.hpp"
#include "../support/shapes.hpp"

namespace test_spectral_norm {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;

namespace {

// W as rows of outputs.
struct Matrix {
  std::size_t rows, columns;
  std::vector<double> values;  // row by row
};

Matrix matrix(const Array<double>& weight, std::size_t output_axis) {
  Matrix m{static_cast<std::size_t>(weight.shape()[output_axis]), 0, {}};
  m.columns = static_cast<std::size_t>(weight.shape().elements()) / m.rows;
  m.values.resize(m.rows * m.columns);
  std::vector<std::size_t> filled(m.rows);
  const auto values = doubles(weight.any());
  std::size_t next = 0;
  for_each_index(weight.shape(), [&](const std::vector<std::int64_t>& i) {
    const auto row = static_cast<std::size_t>(i[output_axis]);
    m.values[row * m.columns + filled[row]++] = values[next++];
  });
  return m;
}

std::vector<double> unit(std::vector<double> x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares);
  return x;
}

struct Iteration {
  std::vector<double> u, v;
  double sigma = 0;
};

// By the paper's definition.
Iteration iterate(const Matrix& w, std::vector<double> u, int times) {
  Iteration result{std::move(u), {}, 0};
  for (int i = 0; i < times; ++i) {
    std::vector<double> v(w.columns), next(w.rows);
    for (std::size_t r = 0; r < w.rows; ++r)
      for (std::size_t c = 0; c < w.columns; ++c) v[c] += w.values[r * w.columns + c] * result.u[r];
    result.v = unit(v);
    for (std::size_t r = 0; r < w.rows; ++r)
      for (std::size_t c = 0; c < w.columns; ++c) next[r] += w.values[r * w.columns + c] * result.v[c];
    result.u = unit(next);
  }
  for (std::size_t r = 0; r < w.rows; ++r)
    for (std::size_t c = 0; c < w.columns; ++c) result.sigma += result.u[r] * w.values[r * w.columns + c] * result.v[c];
  return result;
}

struct Found {
  Array<double> normalised, u, slope;  // the slope: of sum(normalised * weighting) with respect to the weight
};

Found run(const Array<double>& weight, const Array<double>& u, const Array<double>& weighting,
          const nn::SpectralNormOptions& options = {}) {
  Graph graph;
  ReplicaContext replica{graph};
  const auto w = input(graph, weight, 0);
  const auto y = nn::spectral_norm(replica, w, "w", options);
  const auto after = replica.variable<double>("w_u", u.shape(), Initializer::normal(0, 1), {VariableKind::mirrored, false});
  const auto slope = gradient(y * constant(graph, weighting), w);
  const Value wanted[] = {y.any().value(), after.read().any().value(), slope.any().value()};
  auto found = evaluate(graph, wanted, std::vector{weight.any()}, {.variables = {{"w_u", u.any()}}});
  return {Array<double>{found[0]}, Array<double>{found[1]}, Array<double>{found[2]}};
}

int assignments(const Graph& graph) {
  int count = 0;
  for (const auto& node : graph.nodes()) count += node.get<Assign>() ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("spectral norm divides by the sigma of its power iterations, whose gradient takes u and v for constants") {
  CHECK(rc::check([] {
    const auto weight = random_array<double>(draw_shape(2, 4, 1, 4), 1);
    const auto axis = *rc::gen::inRange<std::int64_t>(0, static_cast<std::int64_t>(weight.shape().rank()));
    const int times = *rc::gen::inRange(1, 4);
    const auto w = matrix(weight, static_cast<std::size_t>(axis));
    const auto u = random_array<double>({static_cast<std::int64_t>(w.rows)}, 2);
    const auto weighting = random_array<double>(weight.shape(), 3);
    const auto expected = iterate(w, doubles(u.any()), times);
    const auto found = run(weight, u, weighting, {.power_iterations = times, .output_axis = axis});
    const auto after = matrix(found.normalised, static_cast<std::size_t>(axis));
    const auto slope = matrix(found.slope, static_cast<std::size_t>(axis));
    const auto upstream = matrix(weighting, static_cast<std::size_t>(axis));
    double inner = 0;
    for (std::size_t i = 0; i < w.values.size(); ++i) inner += upstream.values[i] * w.values[i];
    for (std::size_t r = 0; r < w.rows; ++r) {
      RC_ASSERT(found.u[static_cast<std::int64_t>(r)] == Approx(expected.u[r]).margin(1e-12));
      for (std::size_t c = 0; c < w.columns; ++c) {
        const auto i = r * w.columns + c;
        RC_ASSERT(after.values[i] == Approx(w.values[i] / expected.sigma).margin(1e-12));
        const double by_sigma = inner / (expected.sigma * expected.sigma) * expected.u[r] * expected.v[c];
        RC_ASSERT(slope.values[i] == Approx(upstream.values[i] / expected.sigma - by_sigma).epsilon(1e-9).margin(1e-9));
      }
    }
  }));
}

TEST_CASE("from step to step sigma becomes the largest singular value, and the gradient the true one") {
  // Columns of a rotation by 0.7, scaled by 3 and 1, rotated again by -0.4: singular values 3 and 1.
  const double a = 0.7, b = -0.4;
  const Array<double> weight{{2, 2},
                             {3 * std::cos(a) * std::cos(b) - std::sin(a) * std::sin(b),
                              -3 * std::cos(a) * std::sin(b) - std::sin(a) * std::cos(b),
                              3 * std::sin(a) * std::cos(b) + std::cos(a) * std::sin(b),
                              -3 * std::sin(a) * std::sin(b) + std::cos(a) * std::cos(b)}};
  const auto weighting = random_array<double>({2, 2}, 3);
  Array<double> u{{2}, {0.1, 1}};
  for (int step = 0; step < 20; ++step) u = run(weight, u, weighting).u;
  const auto found = run(weight, u, weighting);
  for (std::int64_t i = 0; i < 4; ++i) CHECK(found.normalised[i] * 3 == Approx(weight[i]).margin(1e-12));
  const Function f = [&](Graph& graph, std::span<const AnyTensor> in) {
    ReplicaContext replica{graph};
    return nn::spectral_norm(replica, Tensor<double>{in[0]}, "w", {.power_iterations = 20}).any();
  };
  CHECK(gradient_error(f, {weight.any()}, 1, 1e-4, {.variables = {{"w_u", u.any()}}}) < 1e-6);
}

TEST_CASE("evaluation leaves u as it is") {
  const auto weight = random_array<double>({3, 4}, 1), u = random_array<double>({3}, 2);
  const auto training = run(weight, u, weight), evaluation = run(weight, u, weight, {.training = false});
  CHECK(doubles(evaluation.normalised.any()) == doubles(training.normalised.any()));
  CHECK(doubles(evaluation.u.any()) == doubles(u.any()));
  CHECK(doubles(training.u.any()) != doubles(u.any()));
}

TEST_CASE("a weight used twice in a step is normalised once") {
  const auto kernels = [](int uses) {
    Graph graph;
    ReplicaContext replica{graph};
    const Tensor<float> x{input(graph, {DType::float32, {2, 5}}, 0)};
    for (int i = 0; i < uses; ++i) {
      const auto y = nn::linear(replica, x * static_cast<float>(i + 1), "fc",
                                {.features = 3, .spectral_norm = nn::SpectralNormOptions{}});
      graph.results().push_back(y.any().value());
    }
    CHECK(assignments(graph) == 1);
    int reduces = 0;
    const Graph optimised = optimise(graph);
    for (const auto& node : optimised.nodes())
      reduces += node.get<Compute>() && node.get<Compute>()->operation.get<Reduce>() ? 1 : 0;
    return reduces;
  };
  CHECK(kernels(2) == kernels(1));
}

TEST_CASE("linear, convolution and embedding layers keep the weight as weight_orig and u as weight_u, as PyTorch does") {
  Graph graph;
  ReplicaContext replica{graph};
  const Tensor<float> x{input(graph, {DType::float32, {2, 4, 5, 5}}, 0)};
  nn::conv2d(replica, x, "conv", {.features = 6, .kernel = {3, 3}, .spectral_norm = nn::SpectralNormOptions{}});
  nn::conv_transpose2d(replica, x, "up", {.features = 6, .bias = false, .spectral_norm = nn::SpectralNormOptions{}});
  nn::linear(replica, reshape(x, {2, 100}), "fc", {.features = 3, .spectral_norm = nn::SpectralNormOptions{}});
  const Tensor<std::int32_t> labels{input(graph, {DType::int32, {2}}, 1)};
  const auto rows = nn::embedding(replica, labels, "rows", {.entries = 7, .features = 4, .spectral_norm = nn::SpectralNormOptions{}});
  CHECK(rows.shape() == Shape{2, 4});
  std::vector<std::string> names;
  for (const auto& variable : graph.variables())
    names.push_back(variable.name + variable.type.shape.text() + (variable.trainable ? "" : " not trained"));
  CHECK(names == std::vector<std::string>{"conv.weight_orig[6, 4, 3, 3]", "conv.weight_u[6] not trained",
                                          "conv.bias[6]", "up.weight_orig[4, 6, 1, 1]", "up.weight_u[6] not trained",
                                          "fc.weight_orig[3, 100]", "fc.weight_u[3] not trained", "fc.bias[3]",
                                          "rows.weight_orig[7, 4]", "rows.weight_u[7] not trained"});
}

TEST_CASE("spectral norm refuses what is no weight, at the user's line") {
  Graph graph{1, 2};
  ReplicaContext replica{graph};
  const Tensor<float> vector{input(graph, {DType::float32, {4}}, 0)}, weight{input(graph, {DType::float32, {4, 2}}, 1)};
  const auto found = Contains("found float32[4], output_axis 0 and 1 iterations");
  const auto at = Contains("replica 1: spectral_norm \"w\" at test_spectral_norm.cpp:" + std::to_string(__LINE__ + 1));
  CHECK_THROWS_WITH(nn::spectral_norm(replica, vector, "w"), at && found);
  CHECK_THROWS_WITH(nn::spectral_norm(replica, weight, "w", {.output_axis = 2}), Contains("output_axis 2"));
  CHECK_THROWS_WITH(nn::spectral_norm(replica, weight, "w", {.power_iterations = 0}), Contains("0 iterations"));
}

}  // namespace test_spectral_norm
