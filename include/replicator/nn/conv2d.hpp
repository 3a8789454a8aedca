// SPDX-License-Identifier: Apache-2.0
// A convolution layer for images.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string_view>

#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/layer_text.hpp>
#include <replicator/nn/spectral_norm.hpp>
#include <replicator/ops/convolution.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct Conv2dOptions {
  std::int64_t features = 0;  // output channels; must be given
  Extents2d kernel{1, 1};
  Extents2d stride{1, 1};
  SpatialPadding padding{};
  Extents2d dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  std::optional<Initializer> initializer = {};            // of the weight; default: inverse_root_uniform(fan_in)
  std::optional<SpectralNormOptions> spectral_norm = {};  // if set, the weight is <name>.weight_orig and <name>.weight_u
};

// Convolution of [N, C, H, W] -> [N, features, OH, OW].
// Variables: <name>.weight [features, C / groups, KH, KW], <name>.bias [features]; float32 for bfloat16.
// Throws BuildError if x is no batch of images, features < 1, groups does not divide C and features, or the window does
// not fit.
template <FloatingElement T>
Tensor<T> conv2d(ReplicaContext& replica, Tensor<T> x, std::string_view name, const Conv2dOptions& options,
                 std::source_location where = std::source_location::current()) {
  if (x.shape().rank() != 4 || options.features < 1 || options.groups < 1 || x.shape()[1] < options.groups ||
      x.shape()[1] % options.groups != 0 || options.features % options.groups != 0)
    throw BuildError{detail::layer_text(replica, "conv2d", name, where) +
                     ": x must be [N, C, H, W], features at least 1, and groups a divisor of both C and the features; found " +
                     x.any().type().text() + ", " + std::to_string(options.features) + " features and " +
                     std::to_string(options.groups) + " groups"};
  const auto scope = replica.scope(name);
  const Shape shape{options.features, x.shape()[1] / options.groups, options.kernel[0], options.kernel[1]};
  const Initializer uniform = inverse_root_uniform(fan_in(shape));
  const auto weight =
      detail::layer_weight<T>(replica, shape, options.initializer.value_or(uniform), options.spectral_norm, 0, where);
  const ConvolutionOptions geometry{options.stride, options.padding, options.dilation, options.groups};
  if (!options.bias) return convolution(x, weight, geometry, where);
  return convolution(x, weight, detail::layer_bias<T>(replica, options.features, uniform, where),
                     geometry, where);
}

}  // namespace replicator::nn
