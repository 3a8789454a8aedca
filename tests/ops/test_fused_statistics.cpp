// SPDX-License-Identifier: Apache-2.0
// Convolutions fused with sums over their results: their definition, which graphs use them, and that training is the
// same within rounding.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <tuple>

#include <replicator/cpu/copy.hpp>
#include <replicator/cpu/fused_convolution.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/fusion/fuse_statistics.hpp>
#include <replicator/replicator.hpp>

#include "../support/convolution.hpp"

namespace test_fused_statistics {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// Of y by the definition: [2, O].
std::array<std::vector<double>, 2> sums_of(const AnyArray& y) {
  std::array<std::vector<double>, 2> result;
  for (auto& sums : result) sums.resize(static_cast<std::size_t>(y.shape()[1]));
  const auto values = doubles(y);
  std::size_t next = 0;
  for_each_index(y.shape(), [&](const std::vector<std::int64_t>& index) {
    const auto channel = static_cast<std::size_t>(index[1]);
    const double value = values[next++];
    result[0][channel] += value;
    result[1][channel] += value * value;
  });
  return result;
}

template <Element T>
void check_statistics(const ConvolutionCase& c, double tolerance) {
  const EvaluateOptions options{.highest = KernelTier::user};  // as the parts are chosen
  const auto x = random_array<T>(c.x, 1).any(), w = random_array<T>(c.w, 2).any();
  const TensorType y{dtype_of<T>, c.y}, sums{DType::float32, {c.y[1]}};
  const auto got = run_kernel(FusedConvolution{.options = c.options, .statistics = true}, {held(x), held(w)}, std::array{y, sums, sums}, options);
  const auto plain = run_kernel(Convolution{c.options}, {held(x), held(w)}, std::array{y}, options);
  RC_ASSERT(largest_difference(array_of(got[0]), array_of(plain[0])) == 0);
  const auto want = sums_of(array_of(got[0]));
  RC_ASSERT(largest_difference(array_of(got[1]), array_of(sums, want[0])) < tolerance);
  RC_ASSERT(largest_difference(array_of(got[2]), array_of(sums, want[1])) < tolerance);
}

template <class Op>
int count(const Graph& graph) {
  int found = 0;
  for (const auto& node : graph.nodes()) found += operation_of<Op>(node) != nullptr;
  return found;
}
Graph fused(const Graph& graph) { return passes::remove_dead_code(passes::fuse_statistics(condense(graph))); }

struct Layer {
  Graph graph;
  Tensor<float> x{test::input(graph, {DType::float32, Shape{3, 4, 6, 5}}, 0)}, w{test::input(graph, {DType::float32, Shape{5, 4, 3, 3}}, 1)};
  Tensor<float> y = convolution(x, w, {.padding = {1, 1}});
};

std::vector<AnyArray> inputs_of(const Graph& graph) {
  std::vector<AnyArray> inputs;
  for (const auto& node : graph.nodes())
    if (node.get<Input>()) inputs.push_back(random_array<float>(node.outputs[0].shape, 5 + inputs.size()).any());
  return inputs;
}
void check_same_values(const Graph& graph, double tolerance) {
  const auto inputs = inputs_of(graph);
  const auto want = evaluate(graph, inputs), got = evaluate(fused(graph), inputs);
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(largest_difference(got[i], want[i]) < tolerance);
}

}  // namespace

TEST_CASE("the convolution's result is that of the plain one, the sums are those of its channels") {
  REQUIRE(rc::check("by the kernels of both", [] {
    const auto c = draw_convolution({1, 3, 7});
    RC_LOG(c.text());
    check_statistics<float>(c, 1e-5);
    check_statistics<bfloat16>(c, 1e-5);
  }));
}

TEST_CASE("the mean and the variance of a convolution's result are of its sums, and nothing reads it for them") {
  Layer layer;
  const auto by = moments(layer.y, Axes{0, 2, 3}.kept());
  for (const auto& value : {layer.y, by.mean, by.variance}) layer.graph.results().push_back(value.any().value());
  const Graph graph = fused(layer.graph);
  CHECK(count<FusedConvolution>(graph) == 1);
  CHECK(count<Convolution>(graph) == 0);
  CHECK(count<Reduce>(graph) == 0);
  check_same_values(layer.graph, 2e-6);
}

TEST_CASE("of bfloat16, too, whose statistics are of float32") {
  Graph graph;
  const Tensor<bfloat16> x{test::input(graph, {DType::bfloat16, Shape{2, 3, 5, 5}}, 0)}, w{test::input(graph, {DType::bfloat16, Shape{4, 3, 1, 1}}, 1)};
  const auto by = moments(cast<float>(convolution(x, w)), Axes{0, 2, 3}.kept());
  for (const auto& value : {by.mean, by.variance}) graph.results().push_back(value.any().value());
  CHECK(count<FusedConvolution>(fused(graph)) == 1);
  CHECK(count<Reduce>(fused(graph)) == 0);
}

TEST_CASE("sums of squares, and around any value of a channel") {
  Layer layer;
  const Tensor<float> around{test::input(layer.graph, {DType::float32, Shape{1, 5, 1, 1}}, 2)};
  const auto squares = sum(layer.y * layer.y, {0, 2, 3}), centred = sum((layer.y - around) * (layer.y - around), {0, 2, 3});
  for (const auto& value : {squares, centred}) layer.graph.results().push_back(value.any().value());
  CHECK(count<Reduce>(fused(layer.graph)) == 0);
  check_same_values(layer.graph, 1e-5);
}

TEST_CASE("other sums stay as they are") {
  Layer layer;
  const Tensor<float> pixel{test::input(layer.graph, {DType::float32, Shape{6, 5}}, 2)};
  const auto y = layer.y, shifted = y - pixel;
  for (const auto& value : {sum(y, {0, 2}), max(y, {0, 2, 3}), sum(relu(y), {0, 2, 3}), sum(shifted * shifted, {0, 2, 3}), sum(layer.x, {0, 2, 3})})
    layer.graph.results().push_back(value.any().value());
  const Graph graph = fused(layer.graph);
  CHECK(count<FusedConvolution>(graph) == 0);
  CHECK(count<Reduce>(graph) == 5);
}

TEST_CASE("a variance is never negative, however it is rounded") {
  Layer layer;
  const auto by = moments(layer.y, Axes{0, 2, 3}.kept());
  layer.graph.results().push_back(by.variance.any().value());
  AnyArray x{{DType::float32, layer.x.shape()}}, w{{DType::float32, layer.w.shape()}};
  for (auto& value : x.as<float>()) value = 1000.1f;
  for (auto& value : w.as<float>()) value = 0.1f;
  for (std::size_t o = 0; o < 5; ++o)
    for (std::size_t i = 0; i < 4 * 9; ++i)
      if (i % 9 != 4) w.as<float>()[o * 36 + i] = 0;  // so that y is the same everywhere
  for (const double value : doubles(evaluate(fused(layer.graph), std::array{x, w})[0])) {
    CHECK(value >= 0);
    CHECK(value < 0.1);
  }
}

// --- in training ---

namespace {

struct Outcome {
  std::string digest;
  double loss = 0;
  std::string explanation;
};

// Convolutions with strides, batch norms, a residual; 6 steps on 4 replicas. What batch norms give is computed again for the backward pass.
Outcome train(const char* devices, ConvolutionFusions fusions) {
  const char* const arguments[] = {"--replicas", "4", "--input-threads", "1", "--recompute-bytes", "0", "--devices", devices};
  auto deployment = Deployment::from(arguments);
  deployment.kernel_choice.fuse_convolutions = fusions;
  Replicator repl{deployment};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([n = ctx.replica_batch(16), ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> images{{n, 3, 10, 10}};
      Array<std::int32_t> labels{{n}};
      for (auto& value : images) value = 2 * random.uniform() - 1;
      for (auto& label : labels) label = static_cast<std::int32_t>(random.below(3));
      return std::tuple{images, labels};
    });
  };
  auto step = repl.replicate(input_fn, [](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto layer = [&](Tensor<float> x, const char* name, std::int64_t kernel, std::int64_t stride) {
      const nn::Conv2dOptions options{
          .features = 9, .kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {kernel / 2, kernel / 2}, .bias = false};
      return nn::batch_norm(replica, nn::conv2d(replica, x, name, options), std::string{name} + "_norm");
    };
    auto x = relu(layer(relu(layer(images, "first", 3, 1)), "middle", 3, 1));
    x = relu(layer(x, "second", 3, 2) + layer(x, "shortcut", 1, 2));
    const auto loss = mean(softmax_cross_entropy(nn::linear(replica, global_average_pool(x), "last", {.features = 3}), labels));
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  });
  Outcome outcome;
  for (auto [loss] : step.steps(6)) outcome.loss = mean(loss);
  outcome.digest = repl.digest();
  outcome.explanation = step.explain();
  return outcome;
}

}  // namespace

TEST_CASE("training with fused convolutions is the same within rounding, on any placement with the same bits") {
  const auto plain = train("cpu:0", {});
  CHECK(plain.explanation.find("fused_convolution") == std::string::npos);
  for (const auto& fusions : {ConvolutionFusions{.statistics = true}, ConvolutionFusions{true, true, true}}) {
    const auto one = train("cpu:0", fusions);
    CHECK(one.explanation.find("with sums of its result") != std::string::npos);
    CHECK((one.explanation.find("(of relu(") != std::string::npos) == fusions.prologue);
    CHECK(one.loss == Approx(plain.loss).epsilon(1e-4));
    CHECK(one.digest != plain.digest);
    for (const char* devices : {"cpu:0-1", "cpu:0-2", "cpu:0-3"}) CHECK(train(devices, fusions).digest == one.digest);
  }
}

}  // namespace test_fused_statistics
