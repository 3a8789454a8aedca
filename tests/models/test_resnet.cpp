// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <replicator/graph/passes/optimise.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/losses/loss.hpp>

namespace test_resnet {

namespace rp = replicator;
using Catch::Matchers::Contains;

namespace {

struct Traced {
  rp::Graph graph{0, 8};
  rp::ReplicaContext replica{graph};
  rp::Tensor<float> logits;

  Traced(int depth, rp::Shape images, const rp::models::ResNetOptions& options = {})
      : logits{
            rp::models::resnet(replica, rp::Tensor<float>{element(0, {rp::DType::float32, images})}, depth, options)} {}
  rp::AnyTensor element(std::uint32_t index, rp::TensorType type) {
    return graph.tensor(graph.add({rp::detail::Input{rp::detail::Input::Source::element, index}, {}, {type}, {}, {}}));
  }
};

std::int64_t trainable_elements(const rp::Graph& graph) {
  std::int64_t total = 0;
  for (const auto& variable : graph.variables()) total += variable.trainable ? variable.type.shape.elements() : 0;
  return total;
}

std::vector<std::string> names(const rp::Graph& graph) {
  std::vector<std::string> result;
  for (const auto& variable : graph.variables()) result.push_back(variable.name);
  return result;
}

std::size_t count(const rp::Graph& graph, std::string_view kind) {
  return static_cast<std::size_t>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& n) { return n.kind() == kind; }));
}

const rp::Shape photos{2, 3, 224, 224};

}  // namespace

TEST_CASE("ResNets have as many trainable parameters as torchvision's") {
  const std::pair<int, std::int64_t> expected[] = {
      {18, 11'689'512}, {34, 21'797'672}, {50, 25'557'032}, {101, 44'549'160}, {152, 60'192'808}};
  for (const auto& [depth, parameters] : expected) {
    const Traced traced{depth, photos};
    CHECK(trainable_elements(traced.graph) == parameters);
    CHECK(traced.logits.shape() == rp::Shape{2, 1000});
  }
}

TEST_CASE("the variables of ResNet-18 have torchvision's names, in its order of layers") {
  std::set<std::string> expected{"conv1.weight", "fc.weight", "fc.bias"};
  const auto add_norm = [&](const std::string& name) {
    for (const auto* part : {".weight", ".bias", ".running_mean", ".running_var", ".num_batches_tracked"})
      expected.insert(name + part);
  };
  add_norm("bn1");
  for (const std::string stage : {"1", "2", "3", "4"})
    for (const std::string block : {"0", "1"}) {
      const std::string prefix = "layer" + stage + "." + block + ".";
      for (const std::string i : {"1", "2"}) {
        expected.insert(prefix + "conv" + i + ".weight");
        add_norm(prefix + "bn" + i);
      }
      if (stage == "1" || block == "1") continue;
      expected.insert(prefix + "downsample.0.weight");
      add_norm(prefix + "downsample.1");
    }
  const auto found = names(Traced{18, photos}.graph);
  CHECK(std::set<std::string>{found.begin(), found.end()} == expected);
  CHECK(found.size() == 122);
}

TEST_CASE("the bottlenecks of ResNet-50 have the stride in the 3x3 convolution") {
  const Traced traced{50, photos};
  CHECK(names(traced.graph).size() == 320);
  CHECK(count(traced.graph, "convolution") == 53);
  int strided = 0;
  for (const auto& node : traced.graph.nodes()) {
    const auto* compute = node.get<rp::detail::Compute>();
    const auto* convolution = compute ? compute->operation.get<rp::Convolution>() : nullptr;
    if (!convolution || convolution->options.stride == rp::Extents2d{1, 1}) continue;
    const auto& read = traced.graph.node(node.inputs[1]);
    ++strided;
    const bool expected = read.label == "conv1.weight" || read.label.ends_with(".0.conv2.weight") ||
                          read.label.ends_with("downsample.0.weight");
    CHECK(expected);
  }
  CHECK(strided == 7);
}

TEST_CASE("the CIFAR stem keeps small images large") {
  const Traced small{18, {2, 3, 32, 32}, {.classes = 10, .cifar_stem = true}};
  CHECK(small.logits.shape() == rp::Shape{2, 10});
  CHECK(count(small.graph, "max_pool") == 0);
  CHECK(small.graph.variables()[0].type.shape == rp::Shape{64, 3, 3, 3});
  std::int64_t last = 0;
  for (const auto& node : small.graph.nodes())
    if (node.kind() == "convolution") last = node.outputs[0].shape[2];
  CHECK(last == 4);
  CHECK(count(Traced{18, photos}.graph, "max_pool") == 1);
}

TEST_CASE("a block may begin as the identity") {
  const Traced traced{18, photos, {.zero_residual_gain = true}};
  int zeros = 0;
  for (const auto& variable : traced.graph.variables())
    if (variable.name.ends_with("bn2.weight") || variable.name == "layer1.0.bn1.weight")
      zeros += variable.initializer.a == 0 ? 1 : 0;
  CHECK(zeros == 8);
}

TEST_CASE("in evaluation nothing is assigned") {
  const Traced traced{50, photos, {.training = false}};
  CHECK(count(traced.graph, "assign") == 0);
  CHECK(count(traced.graph, "moments") == 0);
  CHECK(names(traced.graph).size() == 320);  // the same variables as in training
}

TEST_CASE(
    "a training step of ResNet-50 asks for one all-reduce for each parameter, in the order in which gradients become "
    "ready") {
  Traced traced{50, photos};
  const rp::Tensor<std::int32_t> labels{traced.element(1, {rp::DType::int32, {2}})};
  const auto loss = rp::mean(rp::softmax_cross_entropy(traced.logits, labels));
  rp::nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(traced.replica, loss);
  std::vector<std::string> labels_of_all_reduces;
  for (const auto& node : traced.graph.nodes())
    if (node.get<rp::detail::Placeholder>()) labels_of_all_reduces.push_back(node.label);
  CHECK(labels_of_all_reduces.size() == 161);
  CHECK(labels_of_all_reduces.front().starts_with("fc."));
  CHECK(labels_of_all_reduces.back() == "conv1.weight/gradient");
  CHECK(count(traced.graph, "assign") == 2 * 161 + 3 * 53);
  traced.graph.results() = {loss.any().value()};

  // Batch norm costs three passes that sum (mean, variance, backward), of which the last is shared with the shortcut's.
  const auto optimised = rp::detail::optimise(traced.graph);
  std::size_t sums = 0;
  for (const auto& node : optimised.nodes())
    if (const auto* reduce = rp::detail::operation_of<rp::Reduce>(node);
        reduce && reduce->axes == std::vector<std::int64_t>{0, 2, 3})
      ++sums;
  CHECK(sums == 3 * 53 - 4);
}

TEST_CASE("ResNets refuse depths and images that they cannot take, at the user's line") {
  CHECK_THROWS_WITH((Traced{20, photos}), "resnet: the depth 20 does not exist: take 18, 34, 50, 101 or 152");
  CHECK_THROWS_WITH((Traced{18, {2, 3, 224}}),
                    Contains("conv2d \"conv1\" at test_resnet.cpp:") && Contains("found float32[2, 3, 224]"));
  CHECK_THROWS_WITH((Traced{18, {1, 3, 32, 32}}), Contains("training needs more than one element"));
}

TEST_CASE("a ResNet gives what its last layer receives beside its logits, from the same variables") {
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const rp::Tensor<float> x{graph.tensor(graph.add({rp::detail::Input{rp::detail::Input::Source::element, 0}, {}, {{rp::DType::float32, {2, 3, 32, 32}}}, {}, {}}))};
  const auto outputs = rp::models::resnet_outputs(replica, x, 18, {.classes = 10, .cifar_stem = true});
  CHECK(outputs.features.shape() == rp::Shape{2, 512});
  CHECK(outputs.logits.shape() == rp::Shape{2, 10});
  const Traced plain{18, {2, 3, 32, 32}, {.classes = 10, .cifar_stem = true}};
  CHECK(names(graph) == names(plain.graph));
  CHECK(graph.nodes().size() == plain.graph.nodes().size());
}

}  // namespace test_resnet
