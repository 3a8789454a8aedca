// SPDX-License-Identifier: Apache-2.0
// Convolutions fused with the arithmetic around them: their definition, which graphs use them and which must not, and
// the savings in a step of ResNet-50.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <replicator/cpu/copy.hpp>
#include <replicator/cpu/fused_convolution.hpp>
#include <replicator/graph/node_text.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/fusion/fuse_convolutions.hpp>
#include <replicator/replicator.hpp>
#include <replicator/resolve/resolve.hpp>

#include "../support/convolution.hpp"
#include "../support/resnet_step.hpp"

namespace test_fused_arithmetic {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

constexpr ConvolutionFusions only_prologues{.prologue = true}, only_epilogues{.epilogue = true}, both{.prologue = true, .epilogue = true};

Graph fused(const Graph& graph, ConvolutionFusions wanted) { return passes::fuse_convolutions(condense(graph), wanted); }

template <class Op>
int count(const Graph& graph) {
  int found = 0;
  for (const auto& node : graph.nodes()) found += operation_of<Op>(node) != nullptr;
  return found;
}
int prologues(const Graph& graph) {
  int found = 0;
  for (const auto& node : graph.nodes())
    if (const auto* operation = operation_of<FusedConvolution>(node)) found += operation->has_prologue();
  return found;
}
int epilogues(const Graph& graph) {
  int found = 0;
  for (const auto& node : graph.nodes())
    if (const auto* operation = operation_of<FusedConvolution>(node)) found += operation->has_epilogue();
  return found;
}

// What the passes are shown: a convolution between two batch norms by running statistics, each with ReLU.
struct Network {
  Graph graph;
  std::uint32_t inputs = 0;
  Tensor<float> x = tensor({2, 3, 6, 5}), w = tensor({3, 3, 3, 3});
  Tensor<float> before = relu(norm(x)), y = convolution(before, w, {.padding = {1, 1}}), after = relu(norm(y));

  Tensor<float> tensor(const Shape& shape) { return Tensor<float>{test::input(graph, {DType::float32, shape}, inputs++)}; }
  Tensor<float> norm(Tensor<float> of) {
    const Shape channels{1, of.shape()[1], 1, 1};
    return (of - tensor(channels)) * tensor(channels) + tensor(channels);
  }
  void result(Tensor<float> value) { graph.results().push_back(value.any().value()); }
};

std::vector<AnyArray> inputs_of(const Graph& graph) {
  std::vector<AnyArray> inputs;
  for (const auto& node : graph.nodes())
    if (node.get<Input>())
      inputs.push_back(node.outputs[0].dtype == DType::bfloat16 ? random_array<bfloat16>(node.outputs[0].shape, 5 + inputs.size()).any()
                                                                : random_array<float>(node.outputs[0].shape, 5 + inputs.size()).any());
  return inputs;
}
// By the kernels of the parts, which round where the graph does.
void check_same_bits(const Graph& graph, ConvolutionFusions wanted) {
  const auto inputs = inputs_of(graph);
  const auto want = evaluate(condense(graph), inputs, {.highest = KernelTier::user}), got = evaluate(fused(graph, wanted), inputs, {.highest = KernelTier::user});
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(largest_difference(got[i], want[i]) < 1e-6);
}

}  // namespace

TEST_CASE("what alone reads a convolution's result is its epilogue, what it alone reads its prologue") {
  Network network;
  network.result(network.after);
  const Graph one = fused(network.graph, only_epilogues), other = fused(network.graph, only_prologues), all = fused(network.graph, both);
  CHECK((epilogues(one) == 1 && prologues(one) == 0 && count<Map>(one) == 1));
  CHECK((epilogues(other) == 0 && prologues(other) == 1 && count<Map>(other) == 1));
  CHECK((epilogues(all) == 1 && prologues(all) == 1 && count<Map>(all) == 0 && count<FusedConvolution>(all) == 1));
  for (const auto wanted : {only_epilogues, only_prologues, both}) check_same_bits(network.graph, wanted);
}

TEST_CASE("without a name nothing is fused") {
  Network network;
  network.result(network.after);
  CHECK(count<FusedConvolution>(fused(network.graph, {})) == 0);
  CHECK(count<FusedConvolution>(fused(network.graph, {.statistics = true})) == 0);
}

TEST_CASE("a node says what is fused in it") {
  Network network;
  network.result(network.after);
  const Graph graph = fused(network.graph, both);
  for (const auto& node : graph.nodes())
    if (operation_of<FusedConvolution>(node)) {
      CHECK(node.kind() == "fused_convolution");
      CHECK(formula_of(node, 200) == "of relu(add(mul(sub(x0, x1), x2), x3)), then relu(add(mul(sub(x0, x1), x2), x3))");
      CHECK(formula_of(node, 20) == "of relu(add(mul(s...");
    }
}

TEST_CASE("a residual sum is in the epilogue, of the convolution that is computed last") {
  Network network;
  const auto shortcut = convolution(network.before, network.tensor({3, 3, 1, 1}));
  network.result(relu(network.norm(network.y) + network.norm(shortcut)));
  const Graph graph = fused(network.graph, both);
  CHECK(count<Convolution>(graph) == 1);
  CHECK(epilogues(graph) == 1);
  CHECK(prologues(graph) == 0);  // both convolutions read what is before them
  for (const auto& node : graph.nodes())
    if (const auto* operation = operation_of<FusedConvolution>(node)) CHECK(graph.type(node.inputs[operation->image_inputs()]).shape == Shape{3, 3, 1, 1});
  check_same_bits(network.graph, both);
}

TEST_CASE("what somebody else reads, too, is written as ever") {
  SECTION("the convolution's result") {
    Network network;
    for (const auto& value : {network.after, network.y}) network.result(value);
    CHECK(epilogues(fused(network.graph, both)) == 0);
  }
  SECTION("by another node") {
    Network network;
    for (const auto& value : {network.after, max(network.y, {0, 2, 3}), max_pool(network.before, {.window = {2, 2}})}) network.result(value);
    const Graph graph = fused(network.graph, both);
    CHECK(epilogues(graph) == 0);
    CHECK(prologues(graph) == 0);
  }
  SECTION("twice by one node") {
    Network network;
    network.result(convolution(network.before, Tensor<float>{reshape(network.before.any(), Shape{2, 3, 6, 5}, {})}));
    CHECK(prologues(fused(network.graph, both)) == 0);
  }
}

TEST_CASE("other arithmetic, other shapes and other types are left alone") {
  Network network;
  const auto pixels = network.tensor({6, 5});
  const auto plain = convolution(network.x, network.w);
  for (const auto& value : {tanh(plain), convolution(network.x, network.w, {.stride = {2, 2}}) * 2.0f, convolution(network.x + pixels, network.w)}) network.result(value);
  CHECK(count<FusedConvolution>(fused(network.graph, both)) == 0);

  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{2, 3, 4, 4}}, 0)};
  const Tensor<bfloat16> w{test::input(graph, {DType::bfloat16, Shape{3, 3, 1, 1}}, 1)};
  graph.results().push_back(relu(cast<float>(convolution(cast<bfloat16>(x), w))).any().value());
  CHECK(count<FusedConvolution>(fused(graph, both)) == 0);  // a conversion is no arithmetic; the result is wider than the convolution's
}

TEST_CASE("of bfloat16, with numbers of float32 for each channel") {
  Graph graph;
  const Tensor<bfloat16> x{test::input(graph, {DType::bfloat16, Shape{2, 3, 5, 4}}, 0)}, w{test::input(graph, {DType::bfloat16, Shape{4, 3, 3, 3}}, 1)};
  const Tensor<float> scale{test::input(graph, {DType::float32, Shape{1, 3, 1, 1}}, 2)}, bias{test::input(graph, {DType::float32, Shape{4, 1, 1}}, 3)};
  const auto scaled = cast<bfloat16>(relu(cast<float>(x) * scale));
  graph.results().push_back(cast<bfloat16>(relu(cast<float>(convolution(scaled, w)) + bias)).any().value());
  const Graph made = fused(graph, both);
  CHECK((epilogues(made) == 1 && prologues(made) == 1 && count<Map>(made) == 0));
  check_same_bits(graph, both);
}

TEST_CASE("any convolution with arithmetic before and behind it is the kernels of its parts") {
  REQUIRE(rc::check("in one", [] {
    const auto c = draw_convolution({1, 3, 7});
    RC_LOG(c.text());
    Network network;
    const auto x = network.tensor(c.x), w = network.tensor(c.w), residual = network.tensor(c.y);
    network.result(relu(network.norm(convolution(relu(network.norm(x)), w, c.options)) + residual));
    RC_ASSERT(count<FusedConvolution>(fused(network.graph, both)) == 1);
    const auto inputs = inputs_of(network.graph);
    const auto want = evaluate(condense(network.graph), inputs), got = evaluate(fused(network.graph, both), inputs);
    RC_ASSERT(largest_difference(got[0], want[0]) < 1e-5);
  }));
}

// --- in whole networks ---

namespace {

struct Counted {
  int prologues = 0, epilogues = 0, statistics = 0, plain = 0;
  double bytes = 0;  // that kernels read and write
};

// A step of ResNet-50 for 256 images.
Counted count_resnet(bool training, DType dtype, ConvolutionFusions wanted) {
  const auto resolution = resnet_step({256, 3, 224, 224}, dtype, training, wanted);
  Counted counted;
  const Graph& resolved = resolution.classes[0].graph;
  for (const auto& node : resolved.nodes()) {
    const auto* compute = node.get<Compute>();
    if (!compute || compute->operation.alias()) continue;
    for (const auto input : node.inputs) counted.bytes += static_cast<double>(resolved.type(input).bytes());
    for (const auto& output : node.outputs) counted.bytes += static_cast<double>(output.bytes());
    counted.plain += operation_of<Convolution>(node) != nullptr;
    if (const auto* operation = operation_of<FusedConvolution>(node)) {
      counted.prologues += operation->has_prologue();
      counted.epilogues += operation->has_epilogue();
      counted.statistics += operation->statistics;
    }
  }
  return counted;
}

constexpr ConvolutionFusions only_statistics{.statistics = true}, all{true, true, true};

}  // namespace

TEST_CASE("while ResNet-50 trains in float32, 32 convolutions read through a batch norm and ReLU") {
  const auto plain = count_resnet(true, DType::float32, {}), prologue = count_resnet(true, DType::float32, only_prologues),
             statistics = count_resnet(true, DType::float32, only_statistics), everything = count_resnet(true, DType::float32, all);
  CHECK(plain.plain == 53);
  CHECK((prologue.prologues == 32 && prologue.plain == 53 - 32));
  CHECK((everything.statistics == 53 && everything.prologues == 32 && everything.epilogues == 0 && everything.plain == 0));
  CHECK(prologue.bytes == Approx(0.967 * plain.bytes).epsilon(0.002));
  CHECK(statistics.bytes == Approx(0.889 * plain.bytes).epsilon(0.002));
  CHECK(plain.bytes - everything.bytes == Approx(2 * plain.bytes - prologue.bytes - statistics.bytes).epsilon(1e-4));
}

// recompute.hpp computes nothing of bfloat16 again.
TEST_CASE("in bfloat16 what ReLU gives is kept for the weights' gradients, and so read by the next convolution") {
  const auto statistics = count_resnet(true, DType::bfloat16, only_statistics), everything = count_resnet(true, DType::bfloat16, all);
  CHECK((everything.statistics == 53 && everything.prologues == 0 && everything.epilogues == 0));
  CHECK(everything.bytes == statistics.bytes);
  CHECK(statistics.bytes == Approx(0.890 * count_resnet(true, DType::bfloat16, {}).bytes).epsilon(0.002));
}

// The last of the 49 ReLUs is of float32 a part of the reduction that follows.
TEST_CASE("while ResNet-50 is evaluated, convolutions write what ReLU gives") {
  for (const auto dtype : {DType::bfloat16, DType::float32}) {
    const auto plain = count_resnet(false, dtype, {}), epilogue = count_resnet(false, dtype, only_epilogues), everything = count_resnet(false, dtype, all);
    CHECK(plain.plain == 53);
    CHECK(epilogue.epilogues == (dtype == DType::bfloat16 ? 49 : 48));
    CHECK(epilogue.prologues == 0);
    CHECK(everything.bytes == epilogue.bytes);
    CHECK(epilogue.bytes == Approx((dtype == DType::bfloat16 ? 0.604 : 0.600) * plain.bytes).epsilon(0.002));
  }
}

}  // namespace test_fused_arithmetic
