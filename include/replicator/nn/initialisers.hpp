// SPDX-License-Identifier: Apache-2.0
// Initialisers for weights of shape [outputs, inputs] or [outputs, inputs / groups, height, width].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <replicator/core/real.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/graph/variable.hpp>

namespace replicator::nn {

// The number of inputs that reach one output of a weight [out, in, window...]. 1 without such axes, 0 without inputs.
inline std::int64_t fan_in(const Shape& weight) {
  std::int64_t fan = 1;
  for (std::size_t axis = 1; axis < weight.rank(); ++axis) fan *= weight[axis];
  return fan;
}
// The number of outputs that one input of the weight reaches.
inline std::int64_t fan_out(const Shape& weight) {
  std::int64_t fan = 1;
  for (std::size_t axis = 0; axis < weight.rank(); ++axis) fan *= axis == 1 ? 1 : weight[axis];
  return fan;
}

// Normal with variance 2 / fan. Keeps the variance of activations (fan_in) or of gradients (fan_out) through ReLUs. A
// fan of 0 counts as 1.
// Source: He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015.
inline Initializer he_normal(std::int64_t fan) {
  return Initializer::normal(0, replicator::detail::square_root(2.0 / static_cast<double>(std::max<std::int64_t>(fan, 1))));
}

// Uniform in +-1 / sqrt(fan_in), as PyTorch initialises linear and convolution layers. A fan of 0 counts as 1.
inline Initializer inverse_root_uniform(std::int64_t fan) {
  const double bound = 1 / replicator::detail::square_root(static_cast<double>(std::max<std::int64_t>(fan, 1)));
  return Initializer::uniform(-bound, bound);
}

// Uniform with variance gain^2 2 / (fan_in + fan_out). With gain 1 it keeps the variance of activations and gradients
// through tanh.
// Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
inline Initializer glorot_uniform(const Shape& weight, double gain = 1) {
  const double bound = gain * replicator::detail::square_root(6.0 / static_cast<double>(std::max<std::int64_t>(fan_in(weight) + fan_out(weight), 1)));
  return Initializer::uniform(-bound, bound);
}

// Normal with this mean and standard deviation, cut: an element further than two deviations from the mean is drawn again until it is
// not. The deviation of what is left is 0.8796 stddev; nothing is scaled to make up for that.
inline Initializer truncated_normal(double mean = 0, double stddev = 1) { return {Initializer::Kind::truncated_normal, mean, stddev, nullptr}; }

// A random matrix with orthonormal rows, or columns if there are more rows, times `gain`. A weight of more axes counts as
// [outputs, inputs * window]. It keeps the lengths of activations through many layers; PyTorch's recommended gain for a ReLU is
// sqrt(2). It is the Q of the QR decomposition, with a positive diagonal of R, of normal numbers. For a weight m x n with m >= n
// it takes 4 m n^2 operations. The variable must have a floating type and at least two axes: else its declaration throws BuildError.
// Source: Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks", 2013.
inline Initializer orthogonal(double gain = 1) { return {Initializer::Kind::orthogonal, gain, 0, nullptr}; }

}  // namespace replicator::nn
