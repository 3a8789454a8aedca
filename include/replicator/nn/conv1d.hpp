// SPDX-License-Identifier: Apache-2.0
// A convolution layer for sequences: sound, sensors, text.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/layer_text.hpp>
#include <replicator/nn/spectral_norm.hpp>
#include <replicator/ops/convolution.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct Conv1dOptions {
  std::int64_t features = 0;  // output channels; must be given
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  Extents2d padding{};  // zeros before the first and behind the last place; {kernel - 1, 0} makes it causal
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  std::optional<Initializer> initializer = {};            // of the weight; default: inverse_root_uniform(fan_in)
  std::optional<SpectralNormOptions> spectral_norm = {};  // if set, the weight is <name>.weight_orig and <name>.weight_u
};

// Convolution of [N, C, L] -> [N, features, OL], OL = (L + padding - dilation (kernel - 1) - 1) / stride + 1.
// Variables: <name>.weight [features, C / groups, kernel], <name>.bias [features]; float32 for bfloat16.
// Throws BuildError if x is no batch of sequences, features < 1, groups does not divide C and features, or the window does
// not fit.
template <FloatingElement T>
Tensor<T> conv1d(ReplicaContext& replica, Tensor<T> x, std::string_view name, const Conv1dOptions& options,
                 std::source_location where = std::source_location::current()) {
  if (x.shape().rank() != 3 || options.features < 1 || options.groups < 1 || x.shape()[1] < options.groups ||
      x.shape()[1] % options.groups != 0 || options.features % options.groups != 0)
    throw BuildError{detail::layer_text(replica, "conv1d", name, where) +
                     ": x must be [N, C, L], features at least 1, and groups a divisor of both C and the features; found " + x.any().type().text() + ", " +
                     std::to_string(options.features) + " features and " + std::to_string(options.groups) + " groups"};
  const auto scope = replica.scope(name);
  const Shape shape{options.features, x.shape()[1] / options.groups, options.kernel};
  const Initializer uniform = inverse_root_uniform(fan_in(shape));
  const auto weight = detail::layer_weight<T>(replica, shape, options.initializer.value_or(uniform), options.spectral_norm, 0, where);
  // An image of one row. Its only column of windows has no padding above or below.
  const ConvolutionOptions geometry{{1, options.stride}, {{0, 0}, options.padding}, {1, options.dilation}, options.groups};
  const auto row = reshape(x, {x.shape()[0], x.shape()[1], 1, x.shape()[2]}, where);
  const auto window = reshape(weight, {shape[0], shape[1], 1, shape[2]}, where);
  const auto y = options.bias ? convolution(row, window, detail::layer_bias<T>(replica, options.features, uniform, where), geometry, where)
                              : convolution(row, window, geometry, where);
  return reshape(y, {y.shape()[0], y.shape()[1], y.shape()[3]}, where);
}

}  // namespace replicator::nn
