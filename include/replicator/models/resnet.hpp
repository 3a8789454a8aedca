// SPDX-License-Identifier: Apache-2.0
// Residual networks (ResNet), version 1.5: the stride is in the 3x3 convolution. Variables have torchvision's names.
// Source: He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2016; torchvision.models.resnet.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/conv2d.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/ops/pooling.hpp>

namespace replicator::models {

struct ResNetOptions {
  std::int64_t classes = 1000;
  bool training = true;             // true: batch statistics; false: the running ones
  bool cifar_stem = false;          // 3x3, stride 1, no pooling: for images of about 32x32
  bool across_replicas = false;     // batch statistics over all replicas
  bool zero_residual_gain = false;  // every block starts as the identity (Goyal et al., 2017)
  int logical_devices = 1;          // the four stages are distributed over so many, in order; the stem is with the first stage
};

namespace detail {

struct ResNetLayout {
  bool bottleneck;
  std::array<int, 4> blocks;
};

// Throws BuildError for a depth that does not exist.
inline ResNetLayout resnet_layout(int depth) {
  switch (depth) {
    case 18:
      return {false, {2, 2, 2, 2}};
    case 34:
      return {false, {3, 4, 6, 3}};
    case 50:
      return {true, {3, 4, 6, 3}};
    case 101:
      return {true, {3, 4, 23, 3}};
    case 152:
      return {true, {3, 8, 36, 3}};
    default:
      throw BuildError{"resnet: the depth " + std::to_string(depth) + " does not exist: take 18, 34, 50, 101 or 152"};
  }
}

template <FloatingElement T>
class ResNetBuilder {
 public:
  ResNetBuilder(ReplicaContext& replica, const ResNetOptions& options, std::source_location where)
      : replica_{replica}, options_{options}, where_{where} {}

  // [N, C, H, W] -> [N, features]
  Tensor<T> features(Tensor<T> images, const ResNetLayout& layout) {
    Tensor<T> x = stem(images);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const auto here = place(static_cast<int>(stage));
      const auto width = std::int64_t{64} << stage;
      const auto stage_scope = replica_.scope("layer" + std::to_string(stage + 1));
      for (int i = 0; i < layout.blocks[stage]; ++i) {
        const auto block_scope = replica_.scope(std::to_string(i));
        x = block(x, width, i == 0 && stage > 0 ? 2 : 1, layout.bottleneck);
      }
    }
    const auto here = place(3);
    return global_average_pool(x, where_);
  }
  Tensor<T> logits(Tensor<T> features) {
    const auto here = place(3);
    return nn::linear(replica_, features, "fc", {.features = options_.classes}, where_);
  }

 private:
  // With one device, a stage stays on the caller's device.
  replicator::detail::LogicalDeviceScope place(int stage) const {
    Graph& graph = replica_.graph();
    if (options_.logical_devices == 1) return {graph, graph.device()};
    return {graph, stage * options_.logical_devices / 4, Location{where_}};
  }

  Tensor<T> stem(Tensor<T> images) {
    const auto here = place(0);
    const std::int64_t kernel = options_.cifar_stem ? 3 : 7;
    const Tensor<T> x = relu(norm(conv(images, "conv1", 64, kernel, options_.cifar_stem ? 1 : 2), "bn1"), where_);
    return options_.cifar_stem ? x : max_pool(x, {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, where_);
  }

  // basic: 3x3, 3x3;  bottleneck: 1x1, 3x3, 1x1 to four times the width. The first 3x3 has the stride.
  Tensor<T> block(Tensor<T> x, std::int64_t width, std::int64_t stride, bool bottleneck) {
    const auto features = bottleneck ? 4 * width : width;
    const auto gain = options_.zero_residual_gain ? Initializer::zeros() : Initializer::ones();
    Tensor<T> y = bottleneck ? conv(x, "conv1", width, 1, 1) : conv(x, "conv1", width, 3, stride);
    y = relu(norm(y, "bn1"), where_);
    y = conv(y, "conv2", width, 3, bottleneck ? stride : 1);
    if (bottleneck) {
      y = relu(norm(y, "bn2"), where_);
      y = norm(conv(y, "conv3", features, 1, 1), "bn3", gain);
    } else {
      y = norm(y, "bn2", gain);
    }
    if (stride != 1 || x.shape()[1] != features) x = norm(conv(x, "downsample.0", features, 1, stride), "downsample.1");
    return relu(Tensor<T>{apply(replicator::detail::ScalarOp::add, {y, x}, where_)}, where_);
  }

  Tensor<T> conv(Tensor<T> x, std::string_view name, std::int64_t features, std::int64_t kernel, std::int64_t stride) {
    return nn::conv2d(replica_, x, name,
                      {.features = features,
                       .kernel = {kernel, kernel},
                       .stride = {stride, stride},
                       .padding = {kernel / 2, kernel / 2},
                       .bias = false,
                       .initializer = nn::he_normal(features * kernel * kernel)},
                      where_);
  }
  Tensor<T> norm(Tensor<T> x, std::string_view name, Initializer gain = Initializer::ones()) {
    return nn::batch_norm(
        replica_, x, name,
        {.training = options_.training, .across_replicas = options_.across_replicas, .gain = std::move(gain)}, where_);
  }

  ReplicaContext& replica_;
  const ResNetOptions& options_;
  std::source_location where_;
};

}  // namespace detail

// images [N, 3, H, W] -> logits [N, classes]; depth 18, 34, 50, 101 or 152. Convolutions start with He's normal (fan
// out).
// Throws BuildError for another depth, images of another rank, or images too small for the network.
template <FloatingElement T>
Tensor<T> resnet(ReplicaContext& replica, Tensor<T> images, int depth, const ResNetOptions& options = {},
                 std::source_location where = std::source_location::current()) {
  detail::ResNetBuilder<T> builder{replica, options, where};
  return builder.logits(builder.features(images, detail::resnet_layout(depth)));
}

template <FloatingElement T>
struct ResNetOutputs {
  Tensor<T> features;  // the input of the last layer: [N, 512], of bottleneck networks [N, 2048]
  Tensor<T> logits;    // [N, classes]
};

// The same network; also returns the input of its last layer.
template <FloatingElement T>
ResNetOutputs<T> resnet_outputs(ReplicaContext& replica, Tensor<T> images, int depth, const ResNetOptions& options = {},
                                std::source_location where = std::source_location::current()) {
  detail::ResNetBuilder<T> builder{replica, options, where};
  const auto features = builder.features(images, detail::resnet_layout(depth));
  return {features, builder.logits(features)};
}

// The logits of ResNet-18: see resnet.
template <FloatingElement T>
Tensor<T> resnet18(ReplicaContext& replica, Tensor<T> images, const ResNetOptions& options = {},
                   std::source_location where = std::source_location::current()) {
  return resnet(replica, images, 18, options, where);
}
// The logits of ResNet-34: see resnet.
template <FloatingElement T>
Tensor<T> resnet34(ReplicaContext& replica, Tensor<T> images, const ResNetOptions& options = {},
                   std::source_location where = std::source_location::current()) {
  return resnet(replica, images, 34, options, where);
}
// The logits of ResNet-50: see resnet.
template <FloatingElement T>
Tensor<T> resnet50(ReplicaContext& replica, Tensor<T> images, const ResNetOptions& options = {},
                   std::source_location where = std::source_location::current()) {
  return resnet(replica, images, 50, options, where);
}
// The logits of ResNet-101: see resnet.
template <FloatingElement T>
Tensor<T> resnet101(ReplicaContext& replica, Tensor<T> images, const ResNetOptions& options = {},
                    std::source_location where = std::source_location::current()) {
  return resnet(replica, images, 101, options, where);
}
// The logits of ResNet-152: see resnet.
template <FloatingElement T>
Tensor<T> resnet152(ReplicaContext& replica, Tensor<T> images, const ResNetOptions& options = {},
                    std::source_location where = std::source_location::current()) {
  return resnet(replica, images, 152, options, where);
}

}  // namespace replicator::models
