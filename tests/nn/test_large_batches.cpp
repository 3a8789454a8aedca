// SPDX-License-Identifier: Apache-2.0
// Optimizers and their wrappers for large batches, against plain loops in double and PyTorch's figures.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/accumulate.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/clip.hpp>
#include <replicator/nn/optimizers/lamb.hpp>
#include <replicator/nn/optimizers/lars.hpp>
#include <replicator/nn/optimizers/moving_average.hpp>
#include <replicator/nn/optimizers/rmsprop.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/nn/optimizers/sharded.hpp>
#include <replicator/ops/matmul.hpp>

#include "updates.hpp"

namespace test_large_batches {

namespace rp = replicator;
namespace nn = rp::nn;
using namespace rp::test;
using Catch::Matchers::Contains;

namespace {

using Numbers = std::vector<double>;

Numbers gradient_of(int step) { return {three_gradients[step], three_gradients[step] + 4}; }
Numbers beginning() { return {first_values, first_values + 4}; }

double norm(const Numbers& values) {
  double total = 0;
  for (const double value : values) total += value * value;
  return std::sqrt(total);
}

// What is done to four numbers in three steps: update(p, gradient, step).
template <class F>
Numbers by_hand(F update) {
  Numbers p = beginning();
  for (int step = 0; step < 3; ++step) update(p, gradient_of(step), step);
  return p;
}

template <class T, class Optimizer>
Numbers weights(const Optimizer& optimizer, const rp::Shape& shape = {2, 2}) {
  return updated<T>(optimizer, {"w"}, shape).at("w");
}

auto lars_by_hand(double rate, double momentum, double decay, double trust) {
  return by_hand([&, m = Numbers(4)](Numbers& p, const Numbers& g, int) mutable {
    const double ratio = trust * norm(p) / (norm(g) + decay * norm(p));
    for (std::size_t i = 0; i < 4; ++i) p[i] -= m[i] = momentum * m[i] + rate * ratio * (g[i] + decay * p[i]);
  });
}

auto lamb_by_hand(double rate, double beta1, double beta2, double epsilon, double decay) {
  return by_hand([&, m = Numbers(4), v = Numbers(4)](Numbers& p, const Numbers& g, int step) mutable {
    Numbers u(4);
    for (std::size_t i = 0; i < 4; ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(beta1, step + 1)), v_hat = v[i] / (1 - std::pow(beta2, step + 1));
      u[i] = m_hat / (std::sqrt(v_hat) + epsilon) + decay * p[i];
    }
    const double ratio = norm(p) / norm(u);
    for (std::size_t i = 0; i < 4; ++i) p[i] -= rate * ratio * u[i];
  });
}

// A step function of one replica that is given the same values in each step.
template <class F>
auto stepping(rp::Replicator& repl, const std::vector<float>& values, F step_fn) {
  return repl.replicate(
      [values](const rp::InputContext&) {
        return rp::data::from_generator([values](std::int64_t) {
          rp::Array<float> array{{static_cast<std::int64_t>(values.size())}};
          std::copy(values.begin(), values.end(), array.begin());
          return array;
        });
      },
      step_fn);
}

}  // namespace

TEST_CASE("RMSProp is PyTorch's, centred and with momentum too") {
  CHECK(distance(weights<double>(nn::rmsprop({.learning_rate = 0.1})),
                 {0.2209971066270467, -2.106175859799281, 1.0509862675141157, 2.4257264629752107}) < 1e-12);
  nn::RmspropOptions options{.learning_rate = 0.1, .alpha = 0.9, .epsilon = 1e-3, .momentum = 0.5, .weight_decay = 0.5};
  CHECK(distance(weights<double>(nn::rmsprop(options)),
                 {0.2888499926511476, -1.7594908038574542, -0.10997743332175045, 2.3608409957556695}) < 1e-12);
  options.centered = true;
  const Numbers centered{0.24608880055632076, -1.7320522287229465, -0.12042586623488695, 2.3056557283341044};
  CHECK(distance(weights<double>(nn::rmsprop(options)), centered) < 1e-12);
  CHECK(distance(weights<float>(nn::rmsprop(options)), centered) < 1e-6);
  const auto slots = updated<double>(nn::rmsprop(options), {"w/mean_gradient", "w/momentum", "w/mean_square"});
  CHECK(slots.at("w/momentum")[2] == Approx(1.798241344467422));
}

TEST_CASE("LARS follows its algorithm, and vectors are updated as by SGD") {
  const nn::LarsOptions options{.learning_rate = 2, .momentum = 0.5, .weight_decay = 0.25, .trust = 0.125};
  const auto expected = lars_by_hand(2, 0.5, 0.25, 0.125);
  CHECK(distance(weights<double>(nn::lars(options)), expected) < 1e-14);
  CHECK(distance(weights<float>(nn::lars(options)), expected) < 1e-6);
  CHECK(distance(weights<double>(nn::lars(options), {4}), weights<double>(nn::sgd({.learning_rate = 2, .momentum = 0.5}), {4})) < 1e-14);
  auto all = options;
  all.adapt_vectors = true;
  CHECK(weights<double>(nn::lars(all), {4}) == weights<double>(nn::lars(options)));
}

TEST_CASE("LAMB follows its algorithm, and vectors are updated as by Adam") {
  const nn::LambOptions options{.learning_rate = 0.125, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.25};
  const auto expected = lamb_by_hand(0.125, 0.8, 0.95, 1e-3, 0.25);
  CHECK(distance(weights<double>(nn::lamb(options)), expected) < 1e-13);
  CHECK(distance(weights<float>(nn::lamb(options)), expected) < 1e-6);
  const nn::AdamOptions adam{.learning_rate = 0.125, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3};
  CHECK(distance(weights<double>(nn::lamb(options), {4}), weights<double>(nn::adam(adam), {4})) < 1e-13);
}

TEST_CASE("a variable or a gradient of zeros moves by the plain rate under LARS and LAMB, and nothing becomes a NaN") {
  rp::Replicator repl{on_devices(1, 1)};
  auto train = stepping(repl, {1, -1}, [](rp::ReplicaContext& replica, rp::Tensor<float> gradient) {
    const auto zeros = [&](const char* name) { return replica.variable<float>(name, {2, 1}, rp::Initializer::zeros()); };
    const auto a = zeros("a"), b = zeros("b"), still = zeros("still");
    const auto g = rp::reshape(gradient, {2, 1});
    const auto none = rp::zeros_like(g);
    nn::wrap_optimizer(nn::lars({.learning_rate = 0.5})).apply_gradients(replica, std::vector{a, still}, {g, none});
    nn::wrap_optimizer(nn::lamb({.learning_rate = 0.5, .weight_decay = 0})).apply_gradients(replica, std::vector{b, still}, {g, none});
    return rp::sum(g);
  });
  train.step();
  CHECK(doubles(repl.value("a")) == Numbers{-0.5, 0.5});
  CHECK(distance(doubles(repl.value("b")), {-0.5, 0.5}) < 1e-5);
  CHECK(doubles(repl.value("still")) == Numbers{0, 0});
}

TEST_CASE("gradients are clipped by the norm of all of them, and not touched below it") {
  const auto clipped_by_hand = [](double most) {
    return by_hand([=, m = Numbers(4)](Numbers& p, const Numbers& g, int) mutable {
      const double factor = std::min(1.0, most / (norm(g) + 1e-6));
      for (std::size_t i = 0; i < 4; ++i) p[i] -= 0.25 * (m[i] = 0.5 * m[i] + factor * g[i]);
    });
  };
  const auto sgd = nn::sgd({.learning_rate = 0.25, .momentum = 0.5});
  for (const double most : {0.5, 3.0}) CHECK(distance(weights<double>(nn::clipped(sgd, most)), clipped_by_hand(most)) < 1e-14);
  CHECK(weights<float>(nn::clipped(sgd, 1e6)) == weights<float>(sgd));

  rp::Replicator repl{on_devices(1, 1)};  // a matrix, a scalar and a vector: the norm is 5
  auto train = stepping(repl, {2, 4, 2, 1}, [](rp::ReplicaContext& replica, rp::Tensor<float> x) {
    const auto a = replica.variable<float>("a", {2, 1}, rp::Initializer::zeros());
    const auto b = replica.variable<float>("b", {}, rp::Initializer::zeros());
    const auto c = replica.variable<float>("c", {1}, rp::Initializer::zeros());
    const auto part = [&](std::int64_t begin, std::int64_t end) { return rp::slice(x, {begin}, {end}); };
    nn::wrap_optimizer(nn::clipped(nn::sgd({.learning_rate = 1}), 2.5))
        .apply_gradients(replica, std::vector{a, b, c}, {rp::reshape(part(0, 2), {2, 1}), rp::reshape(part(2, 3), {}), part(3, 4)});
    return rp::sum(x);
  });
  train.step();
  CHECK(distance(doubles(repl.value("a")), {-1, -2}) < 1e-6);
  CHECK(distance(doubles(repl.value("b")), {-1}) < 1e-6);
  CHECK(distance(doubles(repl.value("c")), {-0.5}) < 1e-6);
}

TEST_CASE("gradients whose norm is not finite become NaN when they are clipped, all of them") {
  for (const float large : {1e20f, std::numeric_limits<float>::infinity()}) {  // the square of 1e20 is no float
    rp::Replicator repl{on_devices(1, 1)};
    auto train = stepping(repl, {large, 1}, [](rp::ReplicaContext& replica, rp::Tensor<float> x) {
      const auto a = replica.variable<float>("a", {1}, rp::Initializer::zeros());
      const auto b = replica.variable<float>("b", {1}, rp::Initializer::zeros());
      nn::wrap_optimizer(nn::clipped(nn::sgd({.learning_rate = 1}), 1)).apply_gradients(replica, std::vector{a, b}, {rp::slice(x, {0}, {1}), rp::slice(x, {1}, {2})});
      return rp::sum(x);
    });
    train.step();
    CHECK(std::isnan(repl.value("a").as<float>()[0]));
    CHECK(std::isnan(repl.value("b").as<float>()[0]));
  }
}

TEST_CASE("moving averages begin with the first updated value, and a step that evaluates reads them") {
  const auto sgd = nn::sgd({.learning_rate = 0.25});
  const auto found = updated<double>(nn::averaged(sgd, 0.75), {"w", "w/average"});
  CHECK(found.at("w") == weights<double>(sgd));
  Numbers average;
  by_hand([&](Numbers& p, const Numbers& g, int step) {
    for (std::size_t i = 0; i < 4; ++i) p[i] -= 0.25 * g[i];
    if (step == 0) average = p;
    else
      for (std::size_t i = 0; i < 4; ++i) average[i] = 0.75 * average[i] + 0.25 * p[i];
  });
  CHECK(distance(found.at("w/average"), average) < 1e-14);

  rp::Replicator repl{on_devices(3, 2)};
  const auto w = [](rp::ReplicaContext& replica) { return replica.variable<float>("w", {}, rp::Initializer::constant(8)); };
  auto train = stepping(repl, {1}, [&](rp::ReplicaContext& replica, rp::Tensor<float> x) {
    const auto loss = rp::sum(w(replica).read() * x);
    nn::averaged(nn::sgd({.learning_rate = 1}), 0.5).minimize(replica, loss);
    return loss;
  });
  auto evaluate = stepping(repl, {1}, [&](rp::ReplicaContext& replica, rp::Tensor<float> x) {
    const auto averages = nn::read_averages(replica);
    const auto fixed = replica.variable<float>("fixed", {}, rp::Initializer::constant(3), {.trainable = false});
    return std::tuple{rp::sum(w(replica).read() * x), fixed.read()};
  });
  const auto seen = [&] {
    const auto [value, fixed] = evaluate.step();
    CHECK(fixed[2].item() == 3);
    return value[1].item();
  };
  CHECK(seen() == 8);  // never averaged
  train.step();
  CHECK(seen() == 7);
  train.step();
  CHECK(seen() == 6.5f);
  CHECK(repl.value("w").as<float>()[0] == 6);
}

TEST_CASE("micro-batches are added from the left, and have the gradient of the whole batch") {
  const auto after = [](int parts, const std::vector<float>& gradients) {
    rp::Replicator repl{on_devices(1, 1)};
    auto train = stepping(repl, gradients, [parts](rp::ReplicaContext& replica, rp::Tensor<float> x) {
      const auto w = replica.variable<float>("w", {}, rp::Initializer::zeros());
      const auto sums = [&](rp::Tensor<float> part) { return rp::sum(w.read() * part); };
      const auto [loss, variables, means] = nn::accumulate(replica, parts, std::tuple{x}, sums);
      nn::wrap_optimizer(nn::sgd({.learning_rate = static_cast<double>(parts)})).apply_gradients(replica, variables, means);
      return loss;
    });
    train.step();
    return -repl.value("w").as<float>()[0];
  };
  for (const int parts : {1, 2, 3, 6}) CHECK(after(parts, {1, 2, 3, 4, 5, 6}) == 21);
  const float large = 0x1p24f;  // adding 1 to it is lost
  CHECK(after(4, {large, 1, 1, -large}) == 0);
  CHECK(after(4, {1, 1, large, -large}) == 2);
}

TEST_CASE("a batch in parts keeps for the backward pass what a part needs") {
  const auto kept = [](int parts) {
    auto where = on_devices(1, 1);
    where.recompute_bytes = std::int64_t{1} << 40;
    rp::Replicator repl{where};
    auto train = stepping(repl, std::vector<float>(512, 1), [parts](rp::ReplicaContext& replica, rp::Tensor<float> x) {
      const auto w = replica.variable<float>("w", {8, 1024}, rp::Initializer::ones());
      const auto v = replica.variable<float>("v", {1024, 1}, rp::Initializer::ones());
      const auto loss_fn = [&](rp::Tensor<float> rows) {
        const auto h = rp::tanh(rp::matmul(rows, w.read()));  // [64 / parts, 1024]
        return rp::mean(rp::matmul(h, v.read()));
      };
      const auto [loss, variables, gradients] = nn::accumulate(replica, parts, std::tuple{rp::reshape(x, {64, 8})}, loss_fn);
      nn::wrap_optimizer(nn::sgd({})).apply_gradients(replica, variables, gradients);
      return loss;
    });
    train.step();
    const std::string text = train.explain(), use = "activations kept for the backward pass ";
    return std::stod(text.substr(text.find(use, text.find("\nmemory ")) + use.size()));  // KiB
  };
  const double whole = kept(1);
  CHECK(whole >= 256);  // 64 rows of 1024 floats are 256 KiB
  CHECK(kept(4) == Approx(whole / 4).epsilon(0.1));
}

TEST_CASE("what wrappers and optimizers for large batches cannot do is refused in a sentence") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(nn::rmsprop({.alpha = 1}), Contains("rmsprop: alpha is 1: it must lie in [0, 1)"));
  CHECK_THROWS_WITH(nn::rmsprop({.epsilon = 0}), Contains("rmsprop: epsilon is 0: it must be a finite number above 0"));
  CHECK_THROWS_WITH(nn::rmsprop({.momentum = nan}), Contains("rmsprop: momentum is nan"));
  CHECK_THROWS_WITH(nn::lars({.trust = nan}), Contains("lars: trust is nan: it must be a finite number above 0"));
  CHECK_THROWS_WITH(nn::lars({.learning_rate = nan}), Contains("lars: learning_rate is nan"));
  CHECK_THROWS_WITH(nn::lamb({.beta2 = nan}), Contains("lamb: beta2 is nan: it must lie in [0, 1)"));
  CHECK_THROWS_WITH(nn::clipped(nn::sgd({}), 0), Contains("optimizer at test_large_batches.cpp:") && Contains(": clipped: the largest norm is 0: it must be a finite number above 0"));
  CHECK_THROWS_WITH(nn::averaged(nn::sgd({}), 1), Contains("optimizer at test_large_batches.cpp:") && Contains(": averaged: decay is 1: it must lie in [0, 1)"));
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const rp::Tensor<float> x{input(graph, {rp::DType::float32, {6, 2}}, 0)};
  const auto loss = [](rp::Tensor<float> part) { return rp::mean(part); };
  CHECK_THROWS_WITH(nn::accumulate(replica, 4, std::tuple{x}, loss),
                    Contains("replica 0: accumulate at test_large_batches.cpp:") && Contains("asked for 4 parts of float32[6, 2]: the first extent"));
  CHECK_THROWS_WITH(nn::accumulate(replica, 0, std::tuple{x}, loss), Contains("asked for 0 parts: there must be at least 1"));
  CHECK_THROWS_WITH(nn::accumulate(replica, 3, std::tuple{x}, loss), Contains("accumulate at ") && Contains("found no trainable variable"));
  const auto local = replica.variable<float>("local", {}, rp::Initializer::ones(), {rp::VariableKind::replica_local});
  const auto product = local.read() * rp::mean(x);
  CHECK_THROWS_WITH(nn::clipped(nn::lamb({}), 1).minimize(replica, product, {local}), Contains("only mirrored variables can be trained"));
  CHECK_THROWS_WITH(nn::sharded(nn::rmsprop({})).minimize(replica, product, {local}), Contains("only mirrored variables can be trained"));
}

}  // namespace test_large_batches
