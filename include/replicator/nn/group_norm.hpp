// SPDX-License-Identifier: Apache-2.0
// Group normalisation, and instance normalisation: group normalisation with one channel in each group.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/nn/layer_text.hpp>
#include <replicator/ops/movement/broadcast_to.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct GroupNormOptions {
  std::int64_t groups = 0;  // must be given and divide the channels
  double epsilon = 1e-5;
  bool affine = true;  // false: no variables
};

struct InstanceNormOptions {
  double epsilon = 1e-5;
  bool affine = false;  // true: <name>.weight and <name>.bias
};

namespace detail {

// Moments of [N, groups, C / groups], computed from those of the channels [N, C, 1, ...]. The images themselves are not
// reshaped, so they keep the layout that the convolutions gave them.
template <FloatingElement T>
MeanAndVariance<T> moments_of_groups(const MeanAndVariance<T>& channels, std::int64_t groups,
                                     std::source_location where) {
  const Shape& shape = channels.mean.shape();
  if (groups == shape[1]) return channels;
  const Shape grouped{shape[0], groups, shape[1] / groups};
  const auto average = [&](AnyTensor x) {
    const AnyTensor sum = replicator::detail::reduce(ReduceKind::sum, x, Axes{2}.kept(), "group_norm", where);
    return apply(replicator::detail::ScalarOp::divide, sum, static_cast<double>(grouped[2]), where);
  };
  const auto spread = [&](AnyTensor x) {
    return Tensor<T>{reshape(broadcast_to(Tensor<T>{x}, grouped, where), shape, where)};
  };
  const AnyTensor means = reshape(channels.mean.any(), grouped, where);
  const AnyTensor mean = average(means);
  const AnyTensor around = replicator::detail::map_at(
      mean.graph(), dtype_of<T>, where, [](Symbol v, Symbol own, Symbol all) { return v + (own - all) * (own - all); },
      reshape(channels.variance.any(), grouped, where), means, mean);
  return {spread(mean), spread(average(around))};
}

// Both layers. `what`: the layer's name in errors. For bfloat16, computation and variables are float32.
template <FloatingElement T>
Tensor<T> group_norm(ReplicaContext& replica, Tensor<T> x, std::string_view what, std::string_view name,
                     const GroupNormOptions& options, std::source_location where) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(group_norm(replica, cast<float>(x, where), what, name, options, where), where);
  const Shape shape = x.shape();
  const auto fail = [&](const std::string& problem) {
    throw BuildError{layer_text(replica, what, name, where) + ": " + problem + ", found " + x.any().type().text()};
  };
  std::int64_t elements = 1;  // of an example
  for (std::size_t axis = 1; axis < shape.rank(); ++axis) elements *= shape[axis];
  if (shape.rank() < 2 || elements == 0) fail("x must be [N, C, ...], and its examples must have elements");
  const auto channels = shape[1];
  if (options.groups < 1 || channels % options.groups != 0)
    fail("asked for " + std::to_string(options.groups) + " groups, which must divide the channels");
  if (elements == options.groups) fail("there must be more than one element in each group");

  const Tensor<T> images{shape.rank() == 2 ? reshape(x.any(), {shape[0], channels, 1}, where) : x.any()};
  Shape one_per_channel{channels};
  Axes spatial;
  for (std::size_t axis = 2; axis < images.shape().rank(); ++axis) {
    one_per_channel.push_back(1);
    spatial.axes.push_back(static_cast<std::int64_t>(axis));
  }
  const auto by = moments_of_groups(moments(images, spatial.kept(), where), options.groups, where);
  const auto scope = replica.scope(name);
  const auto shaped = [&](std::string_view variable, double start) {
    if (!options.affine) return full<T>(replica, one_per_channel, static_cast<T>(start), where);
    const auto value = replica.variable<T>(variable, {channels}, Initializer::constant(start), {}, where).read(where);
    return Tensor<T>{reshape(value, one_per_channel, where)};
  };
  const auto gamma = shaped("weight", 1);
  // Has the shape of the moments, so that all gradients are sums over the same axes and take one pass.
  const auto beta = broadcast_to(shaped("bias", 0), by.mean.shape(), where);
  return Tensor<T>{reshape(normalise(images, by, gamma, beta, options.epsilon, where).any(), shape, where)};
}

}  // namespace detail

// Group normalisation of [N, C, ...]: each example is normalised by its own mean and variance, over each group of C /
// groups successive channels and all further axes. Same shape.
// Variables: <name>.weight, <name>.bias [C], initially 1 and 0.
// Throws BuildError if groups does not divide the channels, for a rank below 2, for one element in a group, and for an
// epsilon that is negative or not finite.
// Source: Wu and He, "Group normalization", 2018.
template <FloatingElement T>
Tensor<T> group_norm(ReplicaContext& replica, Tensor<T> x, std::string_view name, const GroupNormOptions& options,
                     std::source_location where = std::source_location::current()) {
  return detail::group_norm(replica, x, "group_norm", name, options, where);
}

// Instance normalisation of [N, C, ...]: each channel of each example is normalised by its own mean and variance. Same
// shape.
// Variables, if affine: <name>.weight, <name>.bias [C], initially 1 and 0.
// Throws BuildError for a rank below 2, for one element in a channel, and for an epsilon that is negative or not
// finite.
// Source: Ulyanov, Vedaldi, Lempitsky, "Instance normalization", 2016.
template <FloatingElement T>
Tensor<T> instance_norm(ReplicaContext& replica, Tensor<T> x, std::string_view name,
                        const InstanceNormOptions& options = {},
                        std::source_location where = std::source_location::current()) {
  const auto channels = x.shape().rank() < 2 ? 1 : x.shape()[1];
  return detail::group_norm(replica, x, "instance_norm", name, {channels, options.epsilon, options.affine}, where);
}

}  // namespace replicator::nn
