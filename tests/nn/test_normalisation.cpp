// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/graph/optimise.hpp>
#include <replicator/nn/batch_norm.hpp>

#include "../support/differences.hpp"

namespace rp = replicator;
using namespace rp::test;
using Catch::Matchers::Contains;

namespace {

// Batch norm of [N, C, H, W] with gain and shift as inputs.
rp::AnyTensor normalised(std::span<const rp::AnyTensor> in) {
  const rp::Tensor<double> x{in[0]}, gain{in[1]}, shift{in[2]};
  return rp::normalise(x, rp::moments(x, rp::Axes{0, 2, 3}.kept()), gain, shift, 0.1);
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const rp::BuildError& error) {
    return error.what();
  }
  return "no error";
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
  for (const auto& gradient : rp::gradients(rp::apply(rp::ScalarOp::exponential, {y}, {}), in))
    graph.results().push_back(gradient.value());
  graph.results().push_back(y.value());
  const auto optimised = rp::optimise(graph);
  int reads = 0, writes = 0;
  for (const auto& node : optimised.nodes()) {
    for (const auto value : node.inputs) reads += optimised.type(value).shape == shape ? 1 : 0;
    for (const auto& output : node.outputs) writes += output.shape == shape && node.get<rp::Compute>() ? 1 : 0;
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
    if (const auto* placeholder = node.get<rp::Placeholder>()) {
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
