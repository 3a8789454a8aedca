// SPDX-License-Identifier: Apache-2.0
// The convolutions of ResNet-50 v1.5, for programs that time them alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/graph/operation.hpp>
#include <replicator/ops/convolution.hpp>

namespace bench {

namespace rp = replicator;

struct Layer {
  std::int64_t in, out, window, stride, extent;  // extent of the input picture
  int times;
  bool rectified;  // a ReLU follows the batch norm
};

inline std::vector<Layer> resnet50_layers(std::int64_t image) {
  const bool small = image < 64;
  std::vector<Layer> layers{{3, 64, small ? 3 : 7, small ? 1 : 2, image, 1, true}};
  std::int64_t in = 64, extent = small ? image : image / 4;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = 64 << stage, out = 4 * width, stride = stage == 0 ? 1 : 2, inner = extent / stride;
    const int rest = blocks[stage] - 1;
    layers.push_back({in, width, 1, 1, extent, 1, true});
    layers.push_back({width, width, 3, stride, extent, 1, true});
    layers.push_back({width, out, 1, 1, inner, blocks[stage], false});
    layers.push_back({in, out, 1, stride, extent, 1, false});
    layers.push_back({out, width, 1, 1, inner, rest, true});
    layers.push_back({width, width, 3, 1, inner, rest, true});
    in = out;
    extent = inner;
  }
  return layers;
}

// A convolution in one direction: two inputs and an output, which are the layer's x, w and y in some order.
struct Direction {
  rp::AnyOperation operation;
  std::array<rp::TensorType, 3> types;
  std::array<std::size_t, 3> tensors;  // 0: x, 1: w, 2: y
};

// The forward pass, then the backward passes. The first layer needs no gradient of the pictures.
inline std::vector<Direction> directions_of(const Layer& layer, std::int64_t batch, rp::DType dtype) {
  const std::int64_t padding = layer.window / 2;
  const rp::ConvolutionOptions options{.stride = {layer.stride, layer.stride}, .padding = {padding, padding}};
  const rp::TensorType x{dtype, {batch, layer.in, layer.extent, layer.extent}};
  const rp::TensorType w{dtype, {layer.out, layer.in, layer.window, layer.window}};
  const rp::TensorType y{dtype, rp::detail::convolution_shape(x.shape, w.shape, options)};
  std::vector<Direction> directions;
  directions.push_back({rp::Convolution{options}, {x, w, y}, {0, 1, 2}});
  if (layer.in > 3) directions.push_back({rp::ConvolutionBackwardData{options, x.shape}, {y, w, x}, {2, 1, 0}});
  directions.push_back({rp::ConvolutionBackwardWeights{options, w.shape}, {x, y, w}, {0, 2, 1}});
  return directions;
}

}  // namespace bench
