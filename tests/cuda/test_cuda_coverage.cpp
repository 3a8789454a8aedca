// SPDX-License-Identifier: Apache-2.0
// Needs no GPU: every operation that training uses has a GPU kernel.
#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/graph/passes/optimise.hpp>
#include <replicator/replicator.hpp>

#include "kernel_requests.hpp"

namespace test_cuda_coverage {

using namespace replicator;
using namespace replicator::detail;

namespace {

// Of the operations of a graph, as it runs, that kernels compute.
struct Operations {
  std::set<std::string> all, without_kernel;
};

// Whether the plain kernel takes these shapes: it is made, which needs no GPU.
bool has_kernel(const KernelRequest& request) {
  const auto& slots = request.operation.slots();
  const Kernel* kernel = slots[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(KernelTier::reference)].load();
  return kernel && kernel->make(request);
}

Operations operations_of(const Graph& traced) {
  Operations result;
  test::for_each_request(optimise(traced), [&](const Node&, const KernelRequest& request) {
    if (request.operation.alias()) return;
    const std::string name{request.operation.name()};
    result.all.insert(name);
    if (!has_kernel(request)) result.without_kernel.insert(name);
  });
  return result;
}

}  // namespace

TEST_CASE("every operation of training and validating a ResNet-50 has a kernel for GPUs") {
  const char* const arguments[] = {"--replicas", "1", "--input-threads", "1", "--devices", "cpu:0"};
  Replicator repl{Deployment::from(arguments)};
  std::vector<Operations> found;
  const auto input_fn = [](const InputContext&) {
    return std::vector{std::tuple{Array<float>{{2, 3, 64, 64}}, Array<std::int32_t>{{2}}}};
  };
  (void)repl.replicate(input_fn, [&](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto logits = models::resnet(replica, images, 50, {.classes = 10});
    const auto loss = mean(softmax_cross_entropy(logits, labels, {.label_smoothing = 0.1}));
    nn::lars({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    found.push_back(operations_of(replica.graph()));
    return std::tuple{loss, accuracy(logits, labels)};
  });
  (void)repl.replicate(input_fn, [&](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto logits = models::resnet(replica, images, 50, {.classes = 10, .training = false});
    const auto right = sum(cast<float>(argmax(logits, 1) == labels));
    Graph& graph = replica.graph();
    graph.results().push_back(right.any().value());
    found.push_back(operations_of(graph));
    graph.results().pop_back();
    return right;
  });
  REQUIRE(found.size() == 2);
  for (const char* name :
       {"convolution", "convolution_backward_data", "convolution_backward_weights", "matmul", "map", "reduce", "max_pool", "max_pool_spread"})
    CHECK(found[0].all.count(name) == 1);
  CHECK(found[1].all.count("argmax") == 1);
  for (const auto& operations : found) CHECK(operations.without_kernel == std::set<std::string>{});
}

TEST_CASE("kernels that sort are planned, too, where there is no GPU to ask how much scratch that takes") {
  const char* const arguments[] = {"--replicas", "1", "--input-threads", "1", "--devices", "cpu:0"};
  Replicator repl{Deployment::from(arguments)};
  Operations found;
  const auto input_fn = [](const InputContext&) { return std::vector{Array<std::int32_t>{{7}}}; };
  (void)repl.replicate(input_fn, [&](ReplicaContext& replica, Tensor<std::int32_t> tokens) {
    const auto table = replica.variable<float>("table", {50, 32}, Initializer::zeros());
    const auto loss = mean(top_k(gather(table.read(), tokens), 20).values);
    nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
    found = operations_of(replica.graph());
    return loss;
  });
  for (const char* name : {"gather", "scatter_add", "top_k"}) CHECK(found.all.count(name) == 1);
  CHECK(found.without_kernel == std::set<std::string>{});
}

}  // namespace test_cuda_coverage
