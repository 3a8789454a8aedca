// SPDX-License-Identifier: Apache-2.0
// Recurrent layers and root mean square normalisation, beside loops that follow the formulas.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <replicator/cpu/matmul.hpp>
#include <replicator/cpu/movement.hpp>
#include <replicator/nn/recurrent.hpp>
#include <replicator/nn/rms_norm.hpp>

#include "../support/differences.hpp"

namespace test_recurrent {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t places = 5, batch = 2, inputs = 3, features = 4;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct Weights {
  Array<double> of_input, of_state, input_bias, state_bias;
  explicit Weights(std::int64_t gates)
      : of_input{random_array<double>({gates * features, inputs}, 1)},
        of_state{random_array<double>({gates * features, features}, 2)},
        input_bias{random_array<double>({gates * features}, 3)},
        state_bias{random_array<double>({gates * features}, 4)} {}
  EvaluateOptions options() const {
    return {.variables = {{"r.weight_ih_l0", of_input.any()}, {"r.weight_hh_l0", of_state.any()}, {"r.bias_ih_l0", input_bias.any()}, {"r.bias_hh_l0", state_bias.any()}}};
  }
  double from_input(const Array<double>& x, std::int64_t t, std::int64_t n, std::int64_t row) const {
    double sum = input_bias[row];
    for (std::int64_t i = 0; i < inputs; ++i) sum += of_input[row * inputs + i] * x[(t * batch + n) * inputs + i];
    return sum;
  }
  double from_state(const std::vector<double>& h, std::int64_t row) const {
    double sum = state_bias[row];
    for (std::int64_t i = 0; i < features; ++i) sum += of_state[row * features + i] * h[static_cast<std::size_t>(i)];
    return sum;
  }
};

// outputs[t][n][f] of a state that begins at `first`, for step(t, n, h, f) -> the next h[f], which may use the old ones.
template <class Step>
std::vector<double> outputs_of(double first, Step step) {
  std::vector<double> result(places * batch * features);
  for (std::int64_t n = 0; n < batch; ++n) {
    std::vector<double> h(features, first);
    for (std::int64_t t = 0; t < places; ++t) {
      const auto old = h;
      for (std::int64_t f = 0; f < features; ++f) h[static_cast<std::size_t>(f)] = result[static_cast<std::size_t>((t * batch + n) * features + f)] = step(t, n, old, f);
    }
  }
  return result;
}

void check_close(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(1e-12));
}
std::vector<double> last_of(const std::vector<double>& outputs) { return {outputs.end() - batch * features, outputs.end()}; }

const auto x = random_array<double>({places, batch, inputs}, 7);
Array<double> halves() {
  Array<double> result{{batch, features}};
  for (auto& each : result) each = 0.5;
  return result;
}

}  // namespace

TEST_CASE("gru follows its formula, from zeros and from a given state") {
  const bool given = GENERATE(false, true);
  const Weights w{3};
  const auto expected = outputs_of(given ? 0.5 : 0, [&](std::int64_t t, std::int64_t n, const std::vector<double>& h, std::int64_t f) {
    const double r = logistic(w.from_input(x, t, n, f) + w.from_state(h, f));
    const double z = logistic(w.from_input(x, t, n, features + f) + w.from_state(h, features + f));
    const double fresh = std::tanh(w.from_input(x, t, n, 2 * features + f) + r * w.from_state(h, 2 * features + f));
    return (1 - z) * fresh + z * h[static_cast<std::size_t>(f)];
  });
  Graph graph;
  ReplicaContext replica{graph};
  std::optional<Tensor<double>> first;
  if (given) first = constant(graph, halves());
  const auto y = nn::gru(replica, input(graph, x, 0), "r", {.features = features}, first);
  CHECK(y.outputs.shape() == Shape{places, batch, features});
  check_close(doubles(evaluate(y.outputs, std::vector{x.any()}, w.options())), expected);
  check_close(doubles(evaluate(y.state, std::vector{x.any()}, w.options())), last_of(expected));
}

TEST_CASE("lstm follows its formula, from zeros and from a given state") {
  const bool given = GENERATE(false, true);
  const Weights w{4};
  std::vector<double> cells(batch * features, given ? 0.5 : 0);
  const auto expected = outputs_of(given ? 0.5 : 0, [&](std::int64_t t, std::int64_t n, const std::vector<double>& h, std::int64_t f) {
    const auto gate = [&](std::int64_t g) { return w.from_input(x, t, n, g * features + f) + w.from_state(h, g * features + f); };
    double& c = cells[static_cast<std::size_t>(n * features + f)];
    c = logistic(gate(1)) * c + logistic(gate(0)) * std::tanh(gate(2));
    return logistic(gate(3)) * std::tanh(c);
  });
  Graph graph;
  ReplicaContext replica{graph};
  std::optional<nn::LstmState<double>> first;
  if (given) first = nn::LstmState<double>{constant(graph, halves()), constant(graph, halves())};
  const auto y = nn::lstm(replica, input(graph, x, 0), "r", {.features = features}, first);
  check_close(doubles(evaluate(y.outputs, std::vector{x.any()}, w.options())), expected);
  check_close(doubles(evaluate(y.state.hidden, std::vector{x.any()}, w.options())), last_of(expected));
  check_close(doubles(evaluate(y.state.cell, std::vector{x.any()}, w.options())), cells);
}

TEST_CASE("without bias recurrent layers declare two variables") {
  Graph graph;
  ReplicaContext replica{graph};
  nn::gru(replica, input(graph, x, 0), "r", {.features = 2, .bias = false});
  CHECK(graph.variables().size() == 2);
}

TEST_CASE("split and unbind have the gradients of differences, to second order") {
  const auto function = [](Graph&, std::span<const AnyTensor> in) {
    const auto parts = split(Tensor<double>{in[0]}, {1, 2, 1}, 1);
    auto y = sigmoid(parts[0]) * tanh(parts[1]) + parts[2];
    for (const auto& row : unbind(y, 0)) y = y + tanh(row * row);
    return y.any();
  };
  for (const int order : {1, 2}) CHECK(gradient_error(function, {random_array<double>({batch, 4}, 5).any()}, order) < 1e-6);
}

TEST_CASE("a batch without sequences gives an output without any") {
  Graph graph;
  ReplicaContext replica{graph};
  const Array<double> x{Shape{places, 0, inputs}};
  const auto outputs = nn::gru(replica, input(graph, x, 0), "r", {.features = features}).outputs;
  const auto hidden = nn::lstm(replica, input(graph, x, 0), "l", {.features = features}).state.hidden;
  CHECK(outputs.shape() == Shape{places, 0, features});
  CHECK(hidden.shape() == Shape{0, features});
}

TEST_CASE("recurrent layers refuse what does not fit, with shapes and lines") {
  Graph graph;
  ReplicaContext replica{graph};
  const Array<float> flat{{2, 3}}, sequence{{4, 2, 3}};
  CHECK_THROWS_WITH(nn::gru(replica, input(graph, flat, 0), "r", {.features = 2}),
                    Contains("gru \"r\" at test_recurrent.cpp:") && Contains("x must be [places, batch, inputs]") && Contains("found float32[2, 3] and 2 features"));
  CHECK_THROWS_WITH(nn::lstm(replica, input(graph, sequence, 1), "r", {}), Contains("and 0 features"));
  const std::optional<Tensor<float>> state{input(graph, flat, 0)};
  CHECK_THROWS_WITH(nn::gru(replica, input(graph, sequence, 1), "q", {.features = 2}, state), Contains("the first state must be [2, 2], found float32[2, 3]"));
}

TEST_CASE("split takes parts of any extents, and refuses what does not add up") {
  Graph graph;
  const auto t = input(graph, x, 0);
  const auto parts = split(t, {1, 0, 2});
  CHECK((parts[0].shape() == Shape{places, batch, 1} && parts[1].shape() == Shape{places, batch, 0} && parts[2].shape() == Shape{places, batch, 2}));
  CHECK(doubles(evaluate(concat(parts, -1), std::vector{x.any()})) == doubles(x.any()));
  CHECK_THROWS_WITH(split(t, {1, 1}), Contains("asked for parts of the extents 1, 1 of axis 2 of float64[5, 2, 3]: they must add up to 3"));
  CHECK_THROWS_WITH(split(t, {4, -1}), Contains("an extent cannot be negative"));
  CHECK(unbind(t, 1).size() == 2);
  CHECK(doubles(evaluate(stack(unbind(t, -1), -1), std::vector{x.any()})) == doubles(x.any()));
}

TEST_CASE("rms_norm divides by the root of the mean square, and has one weight") {
  Graph graph;
  ReplicaContext replica{graph};
  const Array<double> values{{2, 2}, {3, 4, 1, -1}};
  const auto y = nn::rms_norm(replica, input(graph, values, 0), "norm", {.epsilon = 0});
  CHECK(graph.variables().size() == 1);
  const EvaluateOptions options{.variables = {{"norm.weight", Array<double>{{2}, {1, 10}}.any()}}};
  check_close(doubles(evaluate(y, std::vector{values.any()}, options)), {3 / std::sqrt(12.5), 40 / std::sqrt(12.5), 1, -10});
  CHECK_THROWS_WITH(nn::rms_norm(replica, input(graph, values, 0), "norm", {.over = 3}), Contains("rms_norm \"norm\" at test_recurrent.cpp:") && Contains("the axis 3 does not exist"));
}

}  // namespace test_recurrent
