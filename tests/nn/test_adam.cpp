// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include <replicator/nn/optimizers/adam.hpp>

#include "updates.hpp"

namespace test_adam {

namespace rp = replicator;
namespace nn = rp::nn;
using Catch::Matchers::Contains;
using rp::test::distance;
using rp::test::updated;

namespace {

constexpr const char* all[] = {"w", "w/first_moment", "w/second_moment", "w/updates"};

template <class T, class Optimizer>
auto trained(const Optimizer& optimizer) {
  return updated<T>(optimizer, {all, all + 4});
}

// Algorithm 2 of Loshchilov and Hutter, as it stands there, for one number.
double adamw_by_hand(double p, const std::vector<double>& gradients, auto rate, double decay) {
  double m = 0, v = 0;
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    const double g = gradients[t - 1];
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    const double m_hat = m / (1 - std::pow(0.9, t)), v_hat = v / (1 - std::pow(0.99, t));
    p -= rate(t - 1) * (m_hat / (std::sqrt(v_hat) + 1e-6) + decay * p);
  }
  return p;
}

}  // namespace

TEST_CASE("Adam is PyTorch's, moments and all") {
  auto plain = trained<double>(nn::adam({.learning_rate = 0.1}));
  CHECK(distance(plain["w"], {0.7957037336010943, -1.9971327020540728, 0.5972777086826633, 2.8274177398503793}) < 1e-12);
  CHECK(distance(plain["w/first_moment"], {0.013, 0.239, -0.005, -0.148}) < 1e-14);
  CHECK(distance(plain["w/second_moment"], {0.00056193775, 0.010239001, 1.9515625e-05, 0.020991004}) < 1e-14);
  CHECK(plain["w/updates"] == std::vector<double>{3});
  const nn::AdamOptions decayed{.learning_rate = 0.1, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.5};
  const std::vector<double> expected{0.7383652628291237, -1.9100025957711697, 0.2257826484381252, 2.7802315378083216};
  CHECK(distance(trained<double>(nn::adam(decayed))["w"], expected) < 1e-12);
  CHECK(distance(trained<float>(nn::adam(decayed))["w"], expected) < 1e-6);
}

TEST_CASE("AdamW is PyTorch's: the decay of a weight does not pass through the moments") {
  auto plain = trained<double>(nn::adamw({.learning_rate = 0.1}));
  CHECK(distance(plain["w"], {0.7929998505586188, -1.991289181068965, 0.5957047945087234, 2.818719854812671}) < 1e-12);
  const nn::AdamwOptions decayed{.learning_rate = 0.1, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.5};
  const std::vector<double> expected{0.6781768951527444, -1.726163635000279, 0.5202987584523496, 2.4238123394335003};
  auto found = trained<double>(nn::adamw(decayed));
  CHECK(distance(found["w"], expected) < 1e-12);
  CHECK(distance(found["w/second_moment"], {0.02675, 0.485125, 0.0009375, 1.028}) < 1e-14);
  CHECK(distance(trained<float>(nn::adamw(decayed))["w"], expected) < 1e-6);
}

TEST_CASE("AdamW with a rate that changes follows the paper's algorithm over many steps") {
  const auto rate = [](auto step) { return 0.05 / (1 + step); };
  rp::Replicator repl{rp::test::on_devices(1, 1)};
  std::vector<double> gradients;
  for (int i = 0; i < 200; ++i) gradients.push_back(std::sin(i) + 0.3);
  auto train = repl.replicate(
      [&](const rp::InputContext&) {
        return rp::data::from_generator([&](std::int64_t at) { return rp::Array<double>{{}, {gradients[static_cast<std::size_t>(at) % 200]}}; });
      },
      [&](rp::ReplicaContext& replica, rp::Tensor<double> gradient) {
        const auto loss = replica.variable<double>("w", {}, rp::Initializer::constant(2)).read() * gradient;
        nn::adamw({.learning_rate = nn::Rate{rate}, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.25}).minimize(replica, loss);
        return loss;
      });
  for (int i = 0; i < 200; ++i) train.step();
  CHECK(repl.value("w").as<double>()[0] == Approx(adamw_by_hand(2, gradients, rate, 0.25)).epsilon(1e-11));
}

TEST_CASE("Adam leaves vectors undecayed where asked, and updates a variable in one pass with its moments") {
  const nn::AdamwOptions options{.learning_rate = 0.1, .weight_decay = 0.5, .decay_vectors = false};
  const auto vector = updated<double>(nn::adamw(options), {"w"}, {4}).at("w");
  CHECK(vector == updated<double>(nn::adam({.learning_rate = 0.1}), {"w"}, {4}).at("w"));
  CHECK(vector != updated<double>(nn::adamw(options), {"w"}, {2, 2}).at("w"));

  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const auto w = replica.variable<float>("w", {3, 3}, rp::Initializer::ones());
  nn::adamw(options).apply_gradients(replica, std::vector{w}, {w.read()});
  std::vector<std::size_t> outputs;  // of each operation on as many elements
  for (const auto& node : graph.nodes())
    if (node.get<rp::detail::Compute>() && node.outputs[0].shape.rank() == 2) outputs.push_back(node.outputs.size());
  CHECK(outputs == std::vector<std::size_t>{3});
}

TEST_CASE("two updates in a step count as two, and moments of bfloat16 variables are float32") {
  rp::Replicator repl{rp::test::on_devices(1, 1)};
  auto train = repl.replicate(
      [](const rp::InputContext&) { return rp::data::from_generator([](std::int64_t) { return rp::Array<rp::bfloat16>{{}, {1.0f}}; }); },
      [](rp::ReplicaContext& replica, rp::Tensor<rp::bfloat16> gradient) {
        const auto w = replica.variable<rp::bfloat16>("w", {}, rp::Initializer::ones());
        const auto loss = w.read() * gradient;
        for (int i = 0; i < 2; ++i) nn::adam({.learning_rate = 0x1p-6}).minimize(replica, loss);
        return loss;
      });
  train.step();
  train.step();
  CHECK(repl.value("w/updates").as<std::int64_t>()[0] == 4);
  CHECK(repl.value("w/second_moment").as<float>()[0] == Approx(1 - std::pow(0.999, 4)).epsilon(1e-4));
  CHECK(static_cast<float>(repl.value("w").as<rp::bfloat16>()[0]) == 1 - 4 * 0x1p-6f);  // equal gradients: each moves by the rate
}

TEST_CASE("options of Adam that cannot be are refused with the optimizer's name") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(nn::adam({.learning_rate = nan}), Contains("adam: learning_rate is nan: it must be a finite number"));
  CHECK_THROWS_WITH(nn::adamw({.learning_rate = -0.1}), Contains("adamw: learning_rate is -0.1: it must be a finite number and must not be negative"));
  for (const double beta : {1.0, -0.1, 1.5, nan}) {
    CHECK_THROWS_WITH(nn::adam({.beta1 = beta}), Contains("adam: beta1 is ") && Contains("it must lie in [0, 1)"));
    CHECK_THROWS_WITH(nn::adamw({.beta2 = beta}), Contains("adamw: beta2 is ") && Contains("it must lie in [0, 1)"));
  }
  for (const double epsilon : {0.0, -1e-8, nan, std::numeric_limits<double>::infinity()})
    CHECK_THROWS_WITH(nn::adam({.epsilon = epsilon}), Contains("adam: epsilon is ") && Contains("it must be a finite number above 0"));
  CHECK_THROWS_WITH(nn::adamw({.weight_decay = nan}), Contains("adamw: weight_decay is nan"));
}

}  // namespace test_adam
