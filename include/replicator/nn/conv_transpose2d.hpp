// SPDX-License-Identifier: Apache-2.0
// A transposed convolution layer for images.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string_view>

#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/layer_text.hpp>
#include <replicator/nn/spectral_norm.hpp>
#include <replicator/ops/convolution_transpose.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct ConvTranspose2dOptions {
  std::int64_t features = 0;  // output channels; must be given
  Extents2d kernel{1, 1};
  Extents2d stride{1, 1};
  SpatialPadding padding{};
  Extents2d output_padding{0, 0};
  Extents2d dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  std::optional<Initializer> initializer = {};            // of the weight; default: as PyTorch's
  std::optional<SpectralNormOptions> spectral_norm = {};  // if set, the weight is <name>.weight_orig and <name>.weight_u
};

// Transposed convolution of [N, C, H, W] -> [N, features, OH, OW]; convolution_transpose defines OH and OW.
// Variables: <name>.weight [C, features / groups, KH, KW], <name>.bias [features].
// Throws BuildError if x is no batch of images, groups does not divide C and features, or the extents do not fit.
template <FloatingElement T>
Tensor<T> conv_transpose2d(ReplicaContext& replica, Tensor<T> x, std::string_view name,
                           const ConvTranspose2dOptions& options,
                           std::source_location where = std::source_location::current()) {
  if (x.shape().rank() != 4 || options.groups < 1 || options.features < options.groups ||
      options.features % options.groups != 0)
    throw BuildError{detail::layer_text(replica, "conv_transpose2d", name, where) +
                     ": x must be [N, C, H, W], features at least 1 and a multiple of groups; found " +
                     x.any().type().text() + ", " + std::to_string(options.features) + " features and " +
                     std::to_string(options.groups) + " groups"};
  const auto scope = replica.scope(name);
  const Shape shape{x.shape()[1], options.features / options.groups, options.kernel[0], options.kernel[1]};
  // As in PyTorch, the fan-in here is the number of outputs that one input reaches.
  const Initializer uniform = inverse_root_uniform(shape[1] * shape[2] * shape[3]);
  const auto weight =
      detail::layer_weight<T>(replica, shape, options.initializer.value_or(uniform), options.spectral_norm, 1, where);
  const ConvolutionTransposeOptions geometry{options.stride, options.padding, options.output_padding, options.dilation,
                                             options.groups};
  if (!options.bias) return convolution_transpose(x, weight, geometry, where);
  return convolution_transpose(
      x, weight, detail::layer_bias<T>(replica, options.features, uniform, where), geometry, where);
}

}  // namespace replicator::nn
