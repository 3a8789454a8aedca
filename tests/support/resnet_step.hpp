// SPDX-License-Identifier: Apache-2.0
// A resolved step of ResNet-50 for 1000 classes, for a deployment of two replicas.
#pragma once

#include <cstdint>
#include <vector>

#include <replicator/models/resnet.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/mixed_precision.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/resolve.hpp>

namespace replicator::test {

using namespace replicator::detail;

// `images`: [n, 3, height, width]. Products are computed in `products`. Without training it is only the loss, with the
// running statistics.
inline Resolution resnet_step(const Shape& images, DType products, bool training = true, ConvolutionFusions fused = {}) {
  Graph graph{0, 2};
  const auto element = [&](std::uint32_t index, const TensorType& type) {
    return graph.tensor(graph.add({Input{Input::Source::element, index}, {}, {type}, {}, {}}));
  };
  const Tensor<float> x{element(0, {DType::float32, images})};
  const Tensor<std::int32_t> labels{element(1, {DType::int32, {images[0]}})};
  ReplicaContext replica{graph};
  const auto computed_in = mixed_precision(replica, products);
  const auto loss = mean(softmax_cross_entropy(models::resnet(replica, x, 50, {.classes = 1000, .training = training}), labels));
  if (training) nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
  graph.results().push_back(loss.any().value());
  return resolve(std::vector{graph, graph}, {.fuse_convolutions = fused});
}

}  // namespace replicator::test
