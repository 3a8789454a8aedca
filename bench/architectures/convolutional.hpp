// SPDX-License-Identifier: Apache-2.0
// Convolutional networks of bench/architectures.cpp: ConvNeXt, MobileNetV2 and a U-Net. Each is a class whose members are its sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/replicator.hpp>

namespace architectures {

namespace rp = replicator;

// [N, C, H, W] -> [N, features, H / stride, W / stride]: a convolution without bias, and a batch norm.
template <rp::FloatingElement T>
rp::Tensor<T> convolution_and_norm(rp::ReplicaContext& replica, rp::Tensor<T> x, std::string_view name, std::int64_t features, std::int64_t kernel,
                                   std::int64_t stride = 1, std::int64_t groups = 1) {
  const auto scope = replica.scope(name);
  x = rp::nn::conv2d(replica, x, "conv",
                     {.features = features, .kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {kernel / 2, kernel / 2}, .groups = groups, .bias = false});
  return rp::nn::batch_norm(replica, x, "bn");
}

// Source: Liu et al., "A ConvNet for the 2020s", 2022.
struct ConvNeXt {
  std::int64_t batch, pixels, classes;
  std::vector<std::int64_t> widths, depths;  // of each stage

  rp::Shape numbers() const { return {batch, 3, pixels, pixels}; }
  rp::Shape labels() const { return {batch}; }

  template <rp::FloatingElement T>
  rp::Tensor<T> loss(rp::ReplicaContext& replica, rp::Tensor<T> x, rp::Tensor<std::int32_t> labels) const {
    x = channel_norm(replica, patches(replica, x, "stem", widths[0], 4), "stem_norm");
    for (std::size_t stage = 0; stage < widths.size(); ++stage) {
      const auto scope = replica.scope("stages." + std::to_string(stage));
      if (stage > 0) x = patches(replica, channel_norm(replica, x, "norm"), "reduce", widths[stage], 2);
      for (std::int64_t i = 0; i < depths[stage]; ++i) x = block(replica, x, "blocks." + std::to_string(i));
    }
    const auto features = rp::nn::layer_norm(replica, rp::global_average_pool(x), "norm", {.epsilon = 1e-6});
    return rp::mean(rp::softmax_cross_entropy(rp::nn::linear(replica, features, "head", {.features = classes}), labels));
  }

 private:
  template <rp::FloatingElement T>
  static rp::Tensor<T> block(rp::ReplicaContext& replica, rp::Tensor<T> x, const std::string& name) {
    const auto scope = replica.scope(name);
    const auto width = x.shape()[1];
    auto y = rp::nn::conv2d(replica, x, "depthwise", {.features = width, .kernel = {7, 7}, .padding = {3, 3}, .groups = width});
    y = rp::nn::layer_norm(replica, rp::transpose(y, {0, 2, 3, 1}), "norm", {.epsilon = 1e-6});  // [N, H, W, C]
    y = rp::gelu(rp::nn::linear(replica, y, "up", {.features = 4 * width}), rp::Gelu::exact);
    y = rp::nn::linear(replica, y, "down", {.features = width});
    const auto scale = replica.variable<T>("scale", {width}, rp::Initializer::constant(1e-6));
    return x + rp::transpose(y * scale.read(), {0, 3, 1, 2});
  }
  template <rp::FloatingElement T>
  static rp::Tensor<T> channel_norm(rp::ReplicaContext& replica, rp::Tensor<T> x, std::string_view name) {
    return rp::transpose(rp::nn::layer_norm(replica, rp::transpose(x, {0, 2, 3, 1}), name, {.epsilon = 1e-6}), {0, 3, 1, 2});
  }
  // Squares of pixels that do not overlap become a pixel each.
  template <rp::FloatingElement T>
  static rp::Tensor<T> patches(rp::ReplicaContext& replica, rp::Tensor<T> x, std::string_view name, std::int64_t features, std::int64_t extent) {
    return rp::nn::conv2d(replica, x, name, {.features = features, .kernel = {extent, extent}, .stride = {extent, extent}});
  }
};

// Source: Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018.
struct MobileNetV2 {
  struct Stage {
    std::int64_t expansion, width, blocks, stride;
  };
  std::int64_t batch, pixels, classes, stem, features;
  std::vector<Stage> stages;

  rp::Shape numbers() const { return {batch, 3, pixels, pixels}; }
  rp::Shape labels() const { return {batch}; }

  template <rp::FloatingElement T>
  rp::Tensor<T> loss(rp::ReplicaContext& replica, rp::Tensor<T> x, rp::Tensor<std::int32_t> labels) const {
    x = rp::relu6(convolution_and_norm(replica, x, "stem", stem, 3, 2));
    int number = 0;
    for (const auto& stage : stages)
      for (std::int64_t i = 0; i < stage.blocks; ++i) x = block(replica, x, "blocks." + std::to_string(number++), stage, i == 0 ? stage.stride : 1);
    x = rp::relu6(convolution_and_norm(replica, x, "last", features, 1));
    return rp::mean(rp::softmax_cross_entropy(rp::nn::linear(replica, rp::global_average_pool(x), "head", {.features = classes}), labels));
  }

 private:
  template <rp::FloatingElement T>
  static rp::Tensor<T> block(rp::ReplicaContext& replica, rp::Tensor<T> x, const std::string& name, const Stage& stage, std::int64_t stride) {
    const auto scope = replica.scope(name);
    const auto wide = x.shape()[1] * stage.expansion;
    auto y = stage.expansion == 1 ? x : rp::relu6(convolution_and_norm(replica, x, "expand", wide, 1));
    y = rp::relu6(convolution_and_norm(replica, y, "depthwise", wide, 3, stride, wide));
    y = convolution_and_norm(replica, y, "project", stage.width, 1);
    return y.shape() == x.shape() ? x + y : y;
  }
};

// With batch norm, and bilinear enlargement on the way up. The loss is of every pixel.
// Source: Ronneberger, Fischer, Brox, "U-Net: convolutional networks for biomedical image segmentation", 2015.
struct UNet {
  std::int64_t batch, pixels, classes;
  std::vector<std::int64_t> widths;  // from the largest picture to the smallest

  rp::Shape numbers() const { return {batch, 3, pixels, pixels}; }
  rp::Shape labels() const { return {batch, pixels, pixels}; }

  template <rp::FloatingElement T>
  rp::Tensor<T> loss(rp::ReplicaContext& replica, rp::Tensor<T> x, rp::Tensor<std::int32_t> labels) const {
    std::vector<rp::Tensor<T>> skipped;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) x = rp::max_pool(x, {.window = {2, 2}});
      x = two_convolutions(replica, x, "down." + std::to_string(i), widths[i]);
      skipped.push_back(x);
    }
    for (std::size_t i = widths.size() - 1; i-- > 0;)
      x = two_convolutions(replica, rp::concat({skipped[i], rp::upsample(x, {2, 2}, rp::Interpolation::bilinear)}, 1), "up." + std::to_string(i), widths[i]);
    const auto logits = rp::nn::conv2d(replica, x, "head", {.features = classes});  // [N, classes, H, W]
    return rp::mean(rp::softmax_cross_entropy(rp::transpose(logits, {0, 2, 3, 1}), labels));
  }

 private:
  template <rp::FloatingElement T>
  static rp::Tensor<T> two_convolutions(rp::ReplicaContext& replica, rp::Tensor<T> x, const std::string& name, std::int64_t width) {
    const auto scope = replica.scope(name);
    x = rp::relu(convolution_and_norm(replica, x, "first", width, 3));
    return rp::relu(convolution_and_norm(replica, x, "second", width, 3));
  }
};

}  // namespace architectures
