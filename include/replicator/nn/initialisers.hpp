// SPDX-License-Identifier: Apache-2.0
// First values of weights, whose shapes are [outputs, inputs] or [outputs, inputs / groups, height, width].
#pragma once

#include <cmath>
#include <cstdint>

#include <replicator/core/shape.hpp>
#include <replicator/graph/variable.hpp>

namespace replicator::nn {

// How many weights reach one output, and how many outputs one input reaches.
inline std::int64_t fan_in(const Shape& weight) { return weight.elements() / weight[0]; }
inline std::int64_t fan_out(const Shape& weight) { return weight.elements() / weight[1]; }

// Normal with variance 2 / fan: keeps the variance of activations (fan_in) or of gradients (fan_out) through ReLUs.
// Source: He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015.
inline Initializer he_normal(std::int64_t fan) {
  return Initializer::normal(0, std::sqrt(2.0 / static_cast<double>(fan)));
}

// Uniform in +-1 / sqrt(fan_in): what PyTorch gives the weights and biases of linear and convolution layers.
inline Initializer inverse_root_uniform(std::int64_t fan) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan));
  return Initializer::uniform(-bound, bound);
}

// Uniform with variance gain^2 2 / (fan_in + fan_out). Source: Glorot and Bengio, 2010.
inline Initializer glorot_uniform(const Shape& weight, double gain = 1) {
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(fan_in(weight) + fan_out(weight)));
  return Initializer::uniform(-bound, bound);
}

}  // namespace replicator::nn
