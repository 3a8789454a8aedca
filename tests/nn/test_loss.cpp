// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/losses/hinge_loss.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/movement/reshape.hpp>

#include "../support/differences.hpp"
#include "../support/errors.hpp"

namespace test_loss {

namespace rp = replicator;
using namespace rp::test;
using Catch::Matchers::Contains;

namespace {

using Labels = rp::Array<std::int32_t>;

// The losses of each example in double, by the definition.
std::vector<double> cross_entropy(const rp::Array<double>& logits, const Labels& labels, double smoothing) {
  const auto n = logits.shape()[0], classes = logits.shape()[1];
  std::vector<double> losses;
  for (std::int64_t i = 0; i < n; ++i) {
    double total = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += std::exp(logits[i * classes + c]);
    double loss = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double target = smoothing / static_cast<double>(classes) + (c == labels[i] ? 1 - smoothing : 0);
      loss -= target * std::log(std::exp(logits[i * classes + c]) / total);
    }
    losses.push_back(loss);
  }
  return losses;
}

struct Losses {
  rp::Graph graph;
  rp::Tensor<double> logits, losses;

  Losses(const rp::Array<double>& x, const Labels& labels, double smoothing)
      : logits{input(graph, x, 0)},
        losses{rp::softmax_cross_entropy(logits, input(graph, labels, 1), {.label_smoothing = smoothing})} {}
};

}  // namespace

TEST_CASE("softmax_cross_entropy is minus the expected logarithm of the softmax, with and without smoothing") {
  const double smoothing = GENERATE(0.0, 0.1, 1.0);
  const auto x = random_array<double>({4, 5}, 1);
  const Labels labels{{4}, {0, 4, 2, 2}};
  Losses l{x, labels, smoothing};
  const auto found = doubles(evaluate(l.losses, std::vector{x.any(), labels.any()}));
  const auto expected = cross_entropy(x, labels, smoothing);
  for (std::size_t i = 0; i < 4; ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-12));
}

TEST_CASE("the gradient of softmax_cross_entropy is softmax minus target") {
  const auto x = random_array<double>({2, 3}, 2);
  const Labels labels{{2}, {2, 0}};
  Losses l{x, labels, 0.3};
  const auto slope = rp::gradient(l.losses, l.logits);
  const auto soft = rp::softmax(l.logits);
  const rp::Value wanted[] = {slope.any().value(), soft.any().value()};
  const auto found = evaluate(l.graph, wanted, std::vector{x.any(), labels.any()});
  for (std::int64_t i = 0; i < 6; ++i) {
    const double target = 0.1 + (i % 3 == labels[i / 3] ? 0.7 : 0);
    CHECK(doubles(found[0])[static_cast<std::size_t>(i)] ==
          Approx(doubles(found[1])[static_cast<std::size_t>(i)] - target).margin(1e-12));
  }
}

TEST_CASE("huge logits neither overflow nor give NaN, and minus infinity masks a class") {
  const rp::Array<double> x{{3, 3}, {1e4, 0, -1e4, -1e4, 0, 1e4, 1, 1, -INFINITY}};
  const Labels labels{{3}, {0, 0, 1}};
  Losses l{x, labels, 0};
  const auto slope = rp::gradient(l.losses, l.logits);
  const rp::Value wanted[] = {l.losses.any().value(), slope.any().value()};
  const auto found = evaluate(l.graph, wanted, std::vector{x.any(), labels.any()});
  CHECK(doubles(found[0]) == std::vector{0.0, 2e4, std::log(2.0)});
  CHECK(doubles(found[1]) == std::vector<double>{0, 0, 0, -1, 0, 1, 0.5, -0.5, 0});
}

TEST_CASE("a label outside of the classes gives NaN for its example, in the gradient too, and leaves the others") {
  const auto x = random_array<double>({4, 3}, 3);
  const Labels labels{{4}, {-1, 3, 0, 2}};
  for (const bool hinge : {false, true}) {
    rp::Graph graph;
    const auto scores = input(graph, x, 0);
    const auto of = input(graph, labels, 1);
    const auto losses = hinge ? rp::multiclass_hinge(scores, of) : rp::softmax_cross_entropy(scores, of);
    const rp::Value wanted[] = {losses.any().value(), rp::gradient(losses, scores).any().value()};
    const auto found = evaluate(graph, wanted, std::vector{x.any(), labels.any()});
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::isnan(doubles(found[0])[i]) == (i < 2));
    for (std::size_t i = 0; i < 12; ++i) CHECK(std::isnan(doubles(found[1])[i]) == (i < 6));
  }
}

TEST_CASE("an ignored label has loss 0 and no gradient, with and without smoothing") {
  const double smoothing = GENERATE(0.0, 0.1);
  const auto x = random_array<double>({3, 4}, 6);
  const Labels labels{{3}, {1, -100, 3}};
  rp::Graph graph;
  const auto logits = input(graph, x, 0);
  const auto losses = rp::softmax_cross_entropy(logits, input(graph, labels, 1), {.label_smoothing = smoothing, .ignored = -100});
  const rp::Value wanted[] = {losses.any().value(), rp::gradient(losses, logits).any().value()};
  const auto found = evaluate(graph, wanted, std::vector{x.any(), labels.any()});
  const auto expected = cross_entropy(x, Labels{{3}, {1, 0, 3}}, smoothing);
  const auto values = doubles(found[0]);
  CHECK(values[0] == Approx(expected[0]).epsilon(1e-12));
  CHECK(values[1] == 0);
  CHECK(values[2] == Approx(expected[2]).epsilon(1e-12));
  for (std::size_t i = 0; i < 12; ++i) CHECK((doubles(found[1])[i] == 0) == (i / 4 == 1));
}

TEST_CASE("losses and softmax agree with finite differences to second order") {
  const Labels labels{{3}, {1, 0, 3}};
  const Function losses[] = {
      [&](rp::Graph& graph, std::span<const rp::AnyTensor> x) {
        return rp::softmax_cross_entropy(rp::Tensor<double>{x[0]}, rp::constant(graph, labels),
                                         {.label_smoothing = 0.2})
            .any();
      },
      [](rp::Graph&, std::span<const rp::AnyTensor> x) { return rp::softmax(rp::Tensor<double>{x[0]}, 0).any(); },
      [](rp::Graph&, std::span<const rp::AnyTensor> x) { return rp::log_softmax(rp::Tensor<double>{x[0]}).any(); },
  };
  for (const auto& f : losses)
    for (const int order : {1, 2}) CHECK(gradient_error(f, {random_array<double>({3, 4}, 4).any()}, order) < 1e-6);
}

TEST_CASE("the logits of every place of a sequence are examples, as they are in one long row of them") {
  const auto x = random_array<float>({2, 3, 5}, 5);
  const Labels labels{{2, 3}, {1, 0, 4, 2, 2, 3}};
  rp::Graph graph;
  const auto in = input(graph, x, 0);
  const auto of = input(graph, labels, 1);
  const auto places = rp::softmax_cross_entropy(in, of, {.label_smoothing = 0.1});
  CHECK(places.shape() == rp::Shape{2, 3});
  const auto rows = rp::reshape(in, {6, 5});
  const auto row_labels = rp::reshape(of, {6});
  const rp::Value wanted[] = {places.any().value(), rp::softmax_cross_entropy(rows, row_labels, {.label_smoothing = 0.1}).any().value(),
                              rp::accuracy(in, of).any().value(), rp::accuracy(rows, row_labels).any().value()};
  const auto found = evaluate(graph, wanted, std::vector{x.any(), labels.any()});
  CHECK(doubles(found[0]) == doubles(found[1]));
  CHECK(doubles(found[2]) == doubles(found[3]));
}

TEST_CASE("log_sum_exp neither overflows nor gives NaN, and its gradient is the softmax") {
  const rp::Array<double> x{{4, 3}, {1, 2, 3, 1e4, 1e4, -1e4, -INFINITY, -INFINITY, -INFINITY, -INFINITY, 0, -INFINITY}};
  rp::Graph graph;
  const auto in = input(graph, x, 0);
  const auto y = rp::log_sum_exp(in);
  CHECK(y.shape() == rp::Shape{4});
  const auto found = doubles(evaluate(y, std::vector{x.any()}));
  CHECK(found[0] == Approx(std::log(std::exp(1) + std::exp(2) + std::exp(3))).epsilon(1e-14));
  CHECK(found[1] == 1e4 + std::log(2.0));
  CHECK(found[2] == -INFINITY);
  CHECK(found[3] == 0);
  const rp::Value wanted[] = {rp::gradient(rp::sum(rp::log_sum_exp(in, 0)), in).any().value(), rp::softmax(in, 0).any().value()};
  const auto z = random_array<double>({4, 3}, 8);
  const auto slopes = evaluate(graph, wanted, std::vector{z.any()});
  CHECK(largest_difference(slopes[0], slopes[1]) < 1e-12);
}

TEST_CASE("softmax sums to one along its axis, and log_softmax is its logarithm") {
  const std::int64_t axis = GENERATE(0, 1, -1);
  const auto x = random_array<double>({3, 4}, 7);
  rp::Graph graph;
  const auto in = input(graph, x, 0);
  const rp::Value wanted[] = {rp::sum(rp::softmax(in, axis), {axis}).any().value(), rp::softmax(in, axis).any().value(),
                              rp::exp(rp::log_softmax(in, axis)).any().value()};
  const auto found = evaluate(graph, wanted, std::vector{x.any()});
  for (const double total : doubles(found[0])) CHECK(total == Approx(1));
  CHECK(largest_difference(found[1], found[2]) < 1e-12);
}

TEST_CASE("accuracy counts the examples whose first largest logit is the label") {
  const rp::Array<float> x{{4, 3}, {0, 1, 2, 5, 5, 1, 1, 3, 3, -1, -2, -3}};
  rp::Graph graph;
  const auto in = input(graph, x, 0);
  const auto accuracy_for = [&](std::initializer_list<std::int32_t> labels) {
    return doubles(evaluate(rp::accuracy(in, rp::constant(graph, Labels{{4}, labels})), std::vector{x.any()}))[0];
  };
  CHECK(accuracy_for({2, 0, 1, 0}) == 1);
  CHECK(accuracy_for({2, 1, 2, 0}) == 0.5);  // the second of two equal logits does not count
  CHECK(accuracy_for({0, 2, 0, 1}) == 0);
}

TEST_CASE("the cross-entropy of a step reads the logits in few passes") {
  rp::Graph graph;
  const rp::Tensor<float> logits{input(graph, {rp::DType::float32, {16, 1000}}, 0)};
  const rp::Tensor<std::int32_t> labels{input(graph, {rp::DType::int32, {16}}, 1)};
  graph.results() = {rp::softmax_cross_entropy(logits, labels).any().value()};
  const auto optimised = rp::detail::optimise(graph);
  int passes = 0;
  for (const auto& node : optimised.nodes())
    for (const auto input : node.inputs) passes += optimised.type(input).shape == rp::Shape{16, 1000} ? 1 : 0;
  CHECK(passes <= 4);
}

TEST_CASE("wrong shapes of logits and labels are refused at the user's line") {
  rp::Graph graph{3, 4};
  const rp::Tensor<float> logits{input(graph, {rp::DType::float32, {4, 10}}, 0)};
  const rp::Tensor<std::int32_t> labels{input(graph, {rp::DType::int32, {5}}, 1)};
  const auto line = std::to_string(__LINE__ + 1);
  const auto error = error_of([&] { rp::softmax_cross_entropy(logits, labels); });
  CHECK(error == "replica 3: softmax_cross_entropy at test_loss.cpp:" + line +
                     ": the logits must be [.., C] and the labels [..]; found float32[4, 10] and int32[5]: the classes are the last axis of the "
                     "logits, and there is a label for each of the rest");
  CHECK_THAT(error_of([&] { rp::accuracy(logits, labels); }), Contains("accuracy at test_loss.cpp:"));
  const rp::Tensor<std::int32_t> four{input(graph, {rp::DType::int32, {4}}, 1)};
  CHECK_THAT(error_of([&] { rp::softmax_cross_entropy(logits, four, {.label_smoothing = 1.5}); }),
             Contains("label_smoothing must lie in [0, 1]"));
  CHECK_THAT(error_of([&] { rp::softmax(logits, 2); }), Contains("the axis 2 does not exist"));
}

}  // namespace test_loss
