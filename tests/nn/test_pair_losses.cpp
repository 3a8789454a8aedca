// SPDX-License-Identifier: Apache-2.0
// Losses of two tensors: regression, binary cross-entropy, divergences, hinges.
#include <catch2/catch.hpp>

#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/losses/divergence.hpp>
#include <replicator/ops/losses/hinge_loss.hpp>
#include <replicator/ops/losses/regression_loss.hpp>
#include <replicator/ops/losses/sigmoid_cross_entropy.hpp>

#include "../support/differences.hpp"
#include "../support/shapes.hpp"

namespace test_pair_losses {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;

namespace {

using Loss = Tensor<double> (*)(Tensor<double>, Tensor<double>);

std::vector<double> values(Loss loss, const Array<double>& a, const Array<double>& b) {
  Graph graph;
  return doubles(evaluate(loss(input(graph, a, 0), input(graph, b, 1)), std::vector{a.any(), b.any()}));
}

// The gradient of the sum of the losses with respect to a.
std::vector<double> slopes(Loss loss, const Array<double>& a, const Array<double>& b) {
  Graph graph;
  const auto x = input(graph, a, 0);
  return doubles(evaluate(gradient(loss(x, input(graph, b, 1)), x), std::vector{a.any(), b.any()}));
}

const Loss bce = [](Tensor<double> x, Tensor<double> t) { return sigmoid_cross_entropy(x, t); };
const Loss kl = [](Tensor<double> p, Tensor<double> q) { return kl_divergence(p, q); };
const Loss categorical_kl = [](Tensor<double> p, Tensor<double> q) { return categorical_kl_divergence(p, q); };

}  // namespace

TEST_CASE("mean_squared_error is the mean over all elements") {
  const Array<double> a{{2, 2}, {0, 1, 2, 3}}, b{{2, 2}, {0, 0, 4, 0}};
  CHECK(values([](Tensor<double> x, Tensor<double> y) { return mean_squared_error(x, y); }, a, b) ==
        std::vector{(1 + 4 + 9) / 4.0});
}

TEST_CASE("huber is quadratic up to delta and linear beyond, with a slope of at most delta") {
  const Array<double> a{{6}, {0, 0.5, -2, 2, 5, -7}}, b{{6}, {0, 0, 0, 0, 1, 1}};
  const Loss loss = [](Tensor<double> x, Tensor<double> y) { return huber(x, y, {.delta = 2}); };
  CHECK(values(loss, a, b) == std::vector<double>{0, 0.125, 2, 2, 6, 14});
  CHECK(slopes(loss, a, b) == std::vector<double>{0, 0.5, -2, 2, 2, -2});
}

TEST_CASE("sigmoid_cross_entropy is the binary cross-entropy, and neither overflows nor cancels") {
  const Array<double> x{{7}, {0.3, -2, 30, -30, 1000, -1000, 1000}}, t{{7}, {0.25, 1, 1, 0, 1, 0, 0}};
  const auto found = values(bce, x, t);
  const double p = 1 / (1 + std::exp(-0.3));
  CHECK(found[0] == Approx(-0.25 * std::log(p) - 0.75 * std::log(1 - p)).epsilon(1e-14));
  CHECK(found[1] == Approx(2 + std::log1p(std::exp(-2))).epsilon(1e-14));
  CHECK(found[2] == Approx(std::exp(-30)).epsilon(1e-12));
  CHECK(found[3] == Approx(std::exp(-30)).epsilon(1e-12));
  CHECK(std::vector(found.begin() + 4, found.end()) == std::vector<double>{0, 0, 1000});
}

TEST_CASE("the gradient of sigmoid_cross_entropy is sigmoid minus target, at zero too") {
  const Array<double> x{{4}, {0, 0, 1000, -1000}}, t{{4}, {1, 0.5, 0, 1}};
  CHECK(slopes(bce, x, t) == std::vector<double>{-0.5, 0, 1, -1});
}

TEST_CASE("sigmoid_cross_entropy and its gradient are a pass each") {
  Graph graph;
  const Tensor<float> x{input(graph, {DType::float32, {64, 64}}, 0)}, t{input(graph, {DType::float32, {64, 64}}, 1)};
  const auto loss = sum(sigmoid_cross_entropy(x, t));
  graph.results() = {loss.any().value(), gradient(loss, x).any().value()};
  const auto optimised = optimise(graph);
  int passes = 0;
  for (const auto& node : optimised.nodes())
    for (const auto value : node.inputs) passes += optimised.type(value).shape == Shape{64, 64} ? 1 : 0;
  CHECK(passes == 4);
}

TEST_CASE("kl_divergence is sum p log(p / q) along the axis, with nothing for what p never does") {
  const Array<double> p{{2, 3},
                        {std::log(0.5), std::log(0.25), std::log(0.25), std::log(0.5), std::log(0.5), -INFINITY}};
  const Array<double> q{{2, 3},
                        {std::log(0.25), std::log(0.5), std::log(0.25), std::log(0.5), std::log(0.5), -INFINITY}};
  const auto found = values(kl, p, q);
  CHECK(found[0] == Approx(0.25 * std::log(2)));
  CHECK(found[1] == 0);
  CHECK(values([](Tensor<double> a, Tensor<double> b) { return kl_divergence(a, b, 0); }, p, q).size() == 3);
  for (const double slope : slopes(kl, p, q)) CHECK(std::isfinite(slope));
}

TEST_CASE("categorical_kl_divergence takes logits, however large, and is zero where they differ by a constant") {
  const Array<double> p{{2, 2}, {1000, 1000, 3, 4}}, q{{2, 2}, {5, 5, 0, 1}};
  for (const double value : values(categorical_kl, p, q)) CHECK(value == Approx(0).margin(1e-15));
  const Array<double> a{{1, 2}, {std::log(3.0), 0}}, b{{1, 2}, {0, 0}};
  CHECK(values(categorical_kl, a, b)[0] == Approx(0.75 * std::log(1.5) + 0.25 * std::log(0.5)));
}

TEST_CASE("hinge is zero from the margin on") {
  const Array<double> x{{4}, {2, 0.25, -1, -3}}, s{{4}, {1, 1, 1, -1}};
  const Loss loss = [](Tensor<double> a, Tensor<double> b) { return hinge(a, b); };
  CHECK(values(loss, x, s) == std::vector<double>{0, 0.75, 2, 0});
  CHECK(slopes(loss, x, s) == std::vector<double>{0, -1, -1, 0});
}

TEST_CASE("multiclass_hinge sums what the other classes exceed the label's score less the margin by") {
  const Array<double> x{{3, 3}, {1, 0.5, 3, 9, 2, 1, 0, 0, 0}};
  const Array<std::int32_t> labels{{3}, {0, 0, 3}};
  Graph graph;
  const auto scores = input(graph, x, 0);
  const auto loss = multiclass_hinge(scores, input(graph, labels, 1));
  const Value wanted[] = {loss.any().value(), gradient(loss, scores).any().value()};
  const auto found = evaluate(graph, wanted, std::vector{x.any(), labels.any()});
  CHECK(doubles(found[0])[0] == 0.5 + 3);
  CHECK(doubles(found[0])[1] == 0);
  CHECK(std::isnan(doubles(found[0])[2]));
  const auto slope = doubles(found[1]);
  CHECK(std::vector(slope.begin(), slope.begin() + 6) == std::vector<double>{-2, 1, 1, 0, 0, 0});
}

TEST_CASE("the hinge losses of a discriminator and its generator are the paper's") {
  const Array<double> real{{2}, {0.5, 3}}, fake{{3}, {-2, 0, 1}};
  const Loss discriminator = [](Tensor<double> a, Tensor<double> b) { return hinge_discriminator_loss(a, b); };
  CHECK(values(discriminator, real, fake)[0] == Approx(0.25 + 1));
  CHECK(values([](Tensor<double>, Tensor<double> b) { return hinge_generator_loss(b); }, real, fake)[0] ==
        Approx(1.0 / 3));
}

TEST_CASE("losses of pairs agree with finite differences to second order") {
  const std::pair<const char*, Loss> losses[] = {
      {"mean_squared_error", [](Tensor<double> a, Tensor<double> b) { return mean_squared_error(a, b); }},
      {"huber", [](Tensor<double> a, Tensor<double> b) { return huber(a, b, {.delta = 0.7}); }},
      {"sigmoid_cross_entropy", bce},
      {"kl_divergence", kl},
      {"categorical_kl_divergence", categorical_kl},
      {"hinge", [](Tensor<double> a, Tensor<double> b) { return hinge(a, b, {.margin = 0.3}); }},
      {"hinge_discriminator_loss", [](Tensor<double> a, Tensor<double> b) { return hinge_discriminator_loss(a, b); }},
  };
  for (const auto& [name, loss] : losses) {
    INFO(name);
    const Function f = [loss = loss](Graph&, std::span<const AnyTensor> in) {
      return loss(Tensor<double>{in[0]}, Tensor<double>{in[1]}).any();
    };
    CHECK(rc::check([&] {
      const Shape shape = draw_shape(1, 3, 1, 4);
      const std::vector<AnyArray> at{random_array<double>(shape, 1).any(), random_array<double>(shape, 2).any()};
      RC_ASSERT(gradient_error(f, at, 1) < 1e-6);
      RC_ASSERT(gradient_error(f, at, 2) < 1e-5);
    }));
  }
}

TEST_CASE("losses of pairs refuse to broadcast, and parameters that make no sense, at the user's line") {
  Graph graph{2, 4};
  const Tensor<float> a{input(graph, {DType::float32, {4, 1}}, 0)}, b{input(graph, {DType::float32, {4}}, 1)};
  const std::string text = ": the shapes must be equal, found [4, 1] and [4]: reshape one of them";
  const auto line = std::to_string(__LINE__ + 1);
  CHECK_THROWS_WITH(huber(a, b), "replica 2: huber at test_pair_losses.cpp:" + line + text);
  CHECK_THROWS_WITH(mean_squared_error(a, b), Contains("mean_squared_error at ") && Contains(text));
  CHECK_THROWS_WITH(sigmoid_cross_entropy(a, b), Contains("sigmoid_cross_entropy at ") && Contains(text));
  CHECK_THROWS_WITH(kl_divergence(a, b), Contains("kl_divergence at ") && Contains(text));
  CHECK_THROWS_WITH(categorical_kl_divergence(a, b), Contains("categorical_kl_divergence at ") && Contains(text));
  CHECK_THROWS_WITH(hinge(a, b), Contains("hinge at ") && Contains(text));
  const Tensor<float> c{input(graph, {DType::float32, {3, 4}}, 2)};  // no reshape can help
  const std::string other = ": the shapes must be equal, found [3, 4] and [4]: one of them has 12 elements, the other 4, so check how both were computed";
  CHECK_THROWS_WITH(huber(c, b), Catch::EndsWith(other));
  CHECK_THROWS_WITH(hinge(c, b), Catch::EndsWith(other));
  CHECK_THROWS_WITH(huber(a, a, {.delta = 0}), Contains("delta must be more than 0, found 0"));
  CHECK_THROWS_WITH(kl_divergence(b, b, 1), Contains("the axis 1 does not exist in the shape [4]"));
}

}  // namespace test_pair_losses
