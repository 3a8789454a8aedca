// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor, called with a variable: rp::exp(w) is rp::exp(w.read()). There are those of elementwise.hpp, activation.hpp
// and reduce.hpp, and softmax, log_softmax, log_sum_exp, flatten, reshape, transpose and stop_gradient. In other calls write w.read().
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include <replicator/ops/activation.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/stop_gradient.hpp>
#include <replicator/resolve/variable.hpp>

namespace replicator {

#define REPLICATOR_READ(function)                                                                          \
  template <Element T>                                                                                     \
  Tensor<T> function(const Variable<T>& w, std::source_location where = std::source_location::current()) { \
    return function(w.read(where), where);                                                                 \
  }
// The second parameter may have a default.
#define REPLICATOR_READ_WITH(function, Parameter, name, ...)                                                                           \
  template <Element T>                                                                                                                 \
  Tensor<T> function(const Variable<T>& w, Parameter name __VA_ARGS__, std::source_location where = std::source_location::current()) { \
    return function(w.read(where), name, where);                                                                                       \
  }
// The first parameter is a number: rp::pow(2, w).
#define REPLICATOR_READ_AFTER(function)                                                                              \
  template <Element T>                                                                                               \
  Tensor<T> function(Number a, const Variable<T>& w, std::source_location where = std::source_location::current()) { \
    return function(a, w.read(where), where);                                                                        \
  }
REPLICATOR_READ(abs)
REPLICATOR_READ(sign)
REPLICATOR_READ(sqrt)
REPLICATOR_READ(exp)
REPLICATOR_READ(log)
REPLICATOR_READ(tanh)
REPLICATOR_READ(erf)
REPLICATOR_READ(sin)
REPLICATOR_READ(cos)
REPLICATOR_READ(floor)
REPLICATOR_READ(ceil)
REPLICATOR_READ(round)
REPLICATOR_READ(relu)
REPLICATOR_READ(relu6)
REPLICATOR_READ(sigmoid)
REPLICATOR_READ(log_sigmoid)
REPLICATOR_READ(hardsigmoid)
REPLICATOR_READ(softplus)
REPLICATOR_READ(silu)
REPLICATOR_READ(hardswish)
REPLICATOR_READ(flatten)
REPLICATOR_READ(zeros_like)
REPLICATOR_READ(stop_gradient)
REPLICATOR_READ(transpose)
REPLICATOR_READ_WITH(gelu, Gelu, formula, = Gelu::tanh)
REPLICATOR_READ_WITH(leaky_relu, double, slope, = 0.01)
REPLICATOR_READ_WITH(elu, double, alpha, = 1)
REPLICATOR_READ_WITH(pow, double, exponent)
REPLICATOR_READ_WITH(minimum, Number, bound)
REPLICATOR_READ_WITH(maximum, Number, bound)
REPLICATOR_READ_WITH(sum, const Axes&, axes, = {})
REPLICATOR_READ_WITH(mean, const Axes&, axes, = {})
REPLICATOR_READ_WITH(max, const Axes&, axes, = {})
REPLICATOR_READ_WITH(min, const Axes&, axes, = {})
REPLICATOR_READ_WITH(softmax, std::int64_t, axis, = -1)
REPLICATOR_READ_WITH(log_softmax, std::int64_t, axis, = -1)
REPLICATOR_READ_WITH(log_sum_exp, std::int64_t, axis, = -1)
REPLICATOR_READ_WITH(reshape, std::vector<std::int64_t>, extents)
REPLICATOR_READ_WITH(transpose, AxisValues, permutation)
REPLICATOR_READ_AFTER(pow)
REPLICATOR_READ_AFTER(minimum)
REPLICATOR_READ_AFTER(maximum)
#undef REPLICATOR_READ
#undef REPLICATOR_READ_AFTER
#undef REPLICATOR_READ_WITH

// As for tensors.
template <Element T>
Tensor<T> clamp(const Variable<T>& w, Number low, Number high, std::source_location where = std::source_location::current()) {
  return clamp(w.read(where), low, high, where);
}
// As for tensors.
template <Element To, Element From>
Tensor<To> cast(const Variable<From>& w, std::source_location where = std::source_location::current()) {
  return cast<To>(w.read(where), where);
}

}  // namespace replicator
