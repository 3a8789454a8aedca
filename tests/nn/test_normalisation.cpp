// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>
#include <string>

#include <replicator/cpu/gather.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/conditional_batch_norm.hpp>
#include <replicator/nn/group_norm.hpp>
#include <replicator/nn/layer_norm.hpp>

#include "../support/differences.hpp"
#include "../support/errors.hpp"

namespace test_normalisation {

namespace rp = replicator;
using namespace rp::test;
using Catch::Matchers::Contains;

namespace {

// Batch norm of [N, C, H, W] with gain and shift as inputs.
rp::AnyTensor normalised(std::span<const rp::AnyTensor> in) {
  const rp::Tensor<double> x{in[0]}, gain{in[1]}, shift{in[2]};
  return rp::normalise(x, rp::moments(x, rp::Axes{0, 2, 3}.kept()), gain, shift, 0.1);
}

}  // namespace

TEST_CASE("moments are the mean and the biased variance over the axes") {
  const rp::Array<double> x{{2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 12}};
  rp::Graph graph;
  const auto [mean, variance] = rp::moments(input(graph, x, 0), {0, 2});
  CHECK(mean.shape() == rp::Shape{2});
  const rp::Value wanted[] = {mean.any().value(), variance.any().value()};
  const auto found = evaluate(graph, wanted, std::vector{x.any()});
  CHECK(doubles(found[0]) == std::vector{3.5, 6.5});
  CHECK(doubles(found[1]) == std::vector{4.25, 12.25});
  CHECK(rp::moments(input(graph, x, 0), rp::Axes{-1}.kept()).mean.shape() == rp::Shape{2, 2, 1});
  CHECK(rp::moments(input(graph, x, 0)).variance.shape() == rp::Shape{});
}

TEST_CASE("moments far from zero do not cancel") {
  rp::Array<double> x{rp::Shape{1000}};
  for (std::int64_t i = 0; i < 1000; ++i) x[i] = 1e8 + static_cast<double>(i % 2);
  rp::Graph graph;
  CHECK(doubles(evaluate(rp::moments(input(graph, x, 0)).variance, std::vector{x.any()}))[0] ==
        Approx(0.25).epsilon(1e-12));
}

TEST_CASE("moments and batch norm agree with finite differences to second order") {
  const auto x = random_array<double>({3, 2, 2, 3}, 1).any();
  const Function mean = [](rp::Graph&, std::span<const rp::AnyTensor> in) {
    return rp::moments(rp::Tensor<double>{in[0]}, {0, 2, 3}).mean.any();
  };
  const Function variance = [](rp::Graph&, std::span<const rp::AnyTensor> in) {
    return rp::moments(rp::Tensor<double>{in[0]}, {0, 2, 3}).variance.any();
  };
  const Function norm = [](rp::Graph&, std::span<const rp::AnyTensor> in) { return normalised(in); };
  for (const int order : {1, 2}) {
    CHECK(gradient_error(mean, {x}, order) < 1e-6);
    CHECK(gradient_error(variance, {x}, order) < 1e-6);
    CHECK(gradient_error(norm,
                         {x, random_array<double>({1, 2, 1, 1}, 2).any(), random_array<double>({1, 2, 1, 1}, 3).any()},
                         order) < 1e-6);
  }
}

TEST_CASE("batch norm and its gradient pass over the images as often as they must") {
  rp::Graph graph;
  const rp::Shape shape{8, 16, 4, 4}, channels{1, 16, 1, 1};
  const rp::AnyTensor in[] = {input(graph, {rp::DType::float64, shape}, 0),
                              input(graph, {rp::DType::float64, channels}, 1),
                              input(graph, {rp::DType::float64, channels}, 2)};
  const rp::AnyTensor y = normalised(in);
  // dy = exp(y): one pass that reads y and writes dy.
  for (const auto& gradient : rp::gradients(rp::detail::apply(rp::detail::ScalarOp::exponential, {y}, {}), in))
    graph.results().push_back(gradient.value());
  graph.results().push_back(y.value());
  const auto optimised = rp::detail::optimise(graph);
  int reads = 0, writes = 0;
  for (const auto& node : optimised.nodes()) {
    for (const auto value : node.inputs) reads += optimised.type(value).shape == shape ? 1 : 0;
    for (const auto& output : node.outputs) writes += output.shape == shape && node.get<rp::detail::Compute>() ? 1 : 0;
  }
  CHECK(reads == 2 + 1 + 1 + 2 + 2);  // mean, variance; y; dy; the sums of dy and x; dx of dy and x
  CHECK(writes == 3);                 // y, dy, dx
}

TEST_CASE("batch norm while training normalises by the batch and moves the running statistics as PyTorch does") {
  const rp::Array<float> x{{2, 1, 1, 2}, {1, 2, 3, 6}};  // mean 3, variance 3.5, unbiased 14 / 3
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const auto y = rp::nn::batch_norm(replica, input(graph, x, 0), "bn", {.epsilon = 0.5});
  std::vector<rp::Value> wanted{y.any().value()};
  for (std::uint32_t v = 0; v < graph.variables().size(); ++v) wanted.push_back(graph.read(v, {}).value());
  std::vector<std::string> names;
  for (const auto& variable : graph.variables()) names.push_back(variable.name);
  CHECK(names == std::vector<std::string>{"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var",
                                          "bn.num_batches_tracked"});
  EvaluateOptions options;
  options.variables = {{"bn.weight", rp::Array<float>{{1}, {2}}.any()},
                       {"bn.bias", rp::Array<float>{{1}, {1}}.any()},
                       {"bn.running_mean", rp::Array<float>{{1}, {10}}.any()},
                       {"bn.running_var", rp::Array<float>{{1}, {1}}.any()},
                       {"bn.num_batches_tracked", rp::Array<std::int64_t>{{}, {4}}.any()}};
  const auto found = evaluate(graph, wanted, std::vector{x.any()}, options);
  const std::vector<double> expected{-1, 0, 1, 4};
  for (std::size_t i = 0; i < 4; ++i) CHECK(doubles(found[0])[i] == Approx(expected[i]));
  CHECK(doubles(found[3])[0] == Approx(9.3));
  CHECK(doubles(found[4])[0] == Approx(0.9 + 0.1 * 14 / 3));
  CHECK(doubles(found[5])[0] == 5);
}

TEST_CASE("batch norm in evaluation takes the running statistics and leaves them") {
  const rp::Array<float> x{{1, 2}, {1, 5}};  // one example: no batch statistics needed
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const auto y = rp::nn::batch_norm(replica, input(graph, x, 0), "bn", {.training = false, .epsilon = 0});
  for (const auto& node : graph.nodes()) CHECK(node.kind() != "assign");
  EvaluateOptions options;
  options.variables = {{"bn.weight", rp::Array<float>{{2}, {1, 2}}.any()},
                       {"bn.bias", rp::Array<float>{{2}, {0, 1}}.any()},
                       {"bn.running_mean", rp::Array<float>{{2}, {3, 1}}.any()},
                       {"bn.running_var", rp::Array<float>{{2}, {4, 16}}.any()}};
  CHECK(doubles(evaluate(y, std::vector{x.any()}, options)) == std::vector{-1.0, 3.0});
}

TEST_CASE("batch norm across replicas asks for the mean of the means, then of the variances around it") {
  rp::Graph graph{1, 4};
  rp::ReplicaContext replica{graph};
  const rp::Tensor<float> x{input(graph, {rp::DType::float32, {1, 3, 1, 1}}, 0)};
  rp::nn::batch_norm(replica, x, "bn", {.across_replicas = true});
  std::vector<std::string> labels;
  for (const auto& node : graph.nodes())
    if (const auto* placeholder = node.get<rp::detail::Placeholder>()) {
      labels.push_back(node.label);
      CHECK(placeholder->reduction == rp::Reduction::mean);
      CHECK(node.outputs[0].shape.elements() == 3);
    }
  CHECK(labels == std::vector<std::string>{"bn.moments/mean", "bn.moments/variance"});
}

TEST_CASE("batch norm refuses what it cannot normalise, at the user's line") {
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const rp::Tensor<float> one{input(graph, {rp::DType::float32, {1, 3, 1, 1}}, 0)};
  // Not inside CHECK: there clang gives the line on which the macro ends.
  const auto line = std::to_string(__LINE__ + 1);
  const auto error = error_of([&] { rp::nn::batch_norm(replica, one, "bn"); });
  CHECK(error == "replica 0: batch_norm \"bn\" at test_normalisation.cpp:" + line +
                     ": training needs more than one element for each channel, found float32[1, 3, 1, 1]");
  const rp::Tensor<float> three{input(graph, {rp::DType::float32, {4, 3, 1}}, 0)};
  CHECK_THAT(error_of([&] { rp::nn::batch_norm(replica, three, "bn"); }), Contains("x must be [N, C] or [N, C, H, W]"));
}

TEST_CASE("layers that normalise refuse a momentum or an epsilon that is none, at the user's line") {
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const rp::Tensor<float> x{input(graph, {rp::DType::float32, {4, 2, 3, 3}}, 0)};
  std::string line;
  const auto at = [&](int next) { line = "test_normalisation.cpp:" + std::to_string(next); };
  for (const double momentum : {-0.125, 1.5, std::nan("")}) {
    at(__LINE__ + 1);
    const auto error = error_of([&] { rp::nn::batch_norm(replica, x, "bn", {.momentum = momentum}); });
    CHECK(error == "replica 0: batch_norm \"bn\" at " + line + ": momentum is " + rp::detail::number_text(momentum) +
                       ": it must lie in [0, 1], found float32[4, 2, 3, 3]");
  }
  const auto check = [&](auto layer, const std::string& rule) { CHECK(error_of(layer) == "the normalisation at " + line + rule); };
  for (const double epsilon : {-1e-5, std::nan(""), HUGE_VAL}) {
    const auto rule = ": epsilon is " + rp::detail::number_text(epsilon) + ": it must be a finite number and must not be negative";
    at(__LINE__ + 1);
    check([&] { rp::nn::batch_norm(replica, x, "bn", {.epsilon = epsilon}); }, rule);
    at(__LINE__ + 1);
    check([&] { rp::nn::layer_norm(replica, x, "ln", {.epsilon = epsilon}); }, rule);
    at(__LINE__ + 1);
    check([&] { rp::nn::group_norm(replica, x, "gn", {.groups = 2, .epsilon = epsilon}); }, rule);
  }
}

TEST_CASE("batch norm that tracks nothing normalises by the batch, in evaluation too") {
  const rp::Array<float> x{{2, 1, 1, 2}, {1, 2, 3, 6}};  // mean 3, variance 3.5
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const auto y = rp::nn::batch_norm(replica, input(graph, x, 0), "bn", {.training = false, .epsilon = 0.5, .track = false});
  CHECK(graph.variables().size() == 2);
  EvaluateOptions options;
  options.variables = {{"bn.weight", rp::Array<float>{{1}, {2}}.any()}, {"bn.bias", rp::Array<float>{{1}, {1}}.any()}};
  const auto found = doubles(evaluate(y, std::vector{x.any()}, options));
  const std::vector<double> expected{-1, 0, 1, 4};
  for (std::size_t i = 0; i < 4; ++i) CHECK(found[i] == Approx(expected[i]));
}

TEST_CASE("conditional batch norm normalises by the whole batch and scales each example by its class") {
  const rp::Array<float> x{{3, 2, 1, 2}, {1, 2, 0, 0, 3, 6, 0, 8, 3, 3, 8, 8}};  // channel 0: mean 3, variance 7 / 3; channel 1: 4, 16
  const rp::Array<std::int32_t> labels{{3}, {1, 0, 1}};
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const auto y = rp::nn::conditional_batch_norm(replica, input(graph, x, 0), input(graph, labels, 1), "bn", {.classes = 2, .epsilon = 0});
  std::vector<std::string> names;
  for (const auto& variable : graph.variables()) names.push_back(variable.name + variable.type.shape.text());
  CHECK(names == std::vector<std::string>{"bn.gain.weight[2, 2]", "bn.bias.weight[2, 2]"});
  EvaluateOptions options;
  options.variables = {{"bn.gain.weight", rp::Array<float>{{2, 2}, {1, 2, 3, 4}}.any()},
                       {"bn.bias.weight", rp::Array<float>{{2, 2}, {10, 20, 30, 40}}.any()}};
  const auto found = doubles(evaluate(y, std::vector{x.any(), labels.any()}, options));
  const double s = std::sqrt(7.0 / 3);
  const std::vector<double> expected{30 - 6 / s, 30 - 3 / s, 36, 36, 10, 10 + 3 / s, 18, 22, 30, 30, 44, 44};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == Approx(expected[i]));
}

TEST_CASE("conditional batch norm across replicas asks for the moments of all, and refuses labels that do not fit") {
  rp::Graph graph{0, 2};
  rp::ReplicaContext replica{graph};
  const rp::Tensor<float> x{input(graph, {rp::DType::float32, {1, 3, 1, 1}}, 0)};
  const rp::Tensor<std::int32_t> one{input(graph, {rp::DType::int32, {1}}, 1)}, two{input(graph, {rp::DType::int32, {2}}, 2)};
  rp::nn::conditional_batch_norm(replica, x, one, "bn", {.classes = 2, .across_replicas = true});
  std::vector<std::string> labels;
  for (const auto& node : graph.nodes())
    if (node.get<rp::detail::Placeholder>()) labels.push_back(node.label);
  CHECK(labels == std::vector<std::string>{"bn.moments/mean", "bn.moments/variance"});
  const auto refused = [&](rp::Tensor<std::int32_t> y, rp::nn::ConditionalBatchNormOptions options) {
    return error_of([&] { rp::nn::conditional_batch_norm(replica, x, y, "bn", options); });
  };
  CHECK_THAT(refused(two, {.classes = 2, .across_replicas = true}), Contains("labels [N]") && Contains("int32[2]"));
  CHECK_THAT(refused(one, {.across_replicas = true}), Contains("0 classes"));
  CHECK_THAT(refused(one, {.classes = 2}), Contains("more than one element for each channel"));
}

}  // namespace test_normalisation
