// SPDX-License-Identifier: Apache-2.0
// Batch normalisation as a layer with running statistics, over the batch of one replica or of all.
#pragma once

#include <cstdint>
#include <source_location>
#include <string_view>

#include <replicator/core/number_text.hpp>
#include <replicator/nn/cross_replica_moments.hpp>
#include <replicator/nn/layer_text.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct BatchNormOptions {
  bool training = true;          // false: normalise by the running statistics and do not update them
  bool across_replicas = false;  // statistics over the batches of all replicas together
  double momentum = 0.1;         // weight of the new batch in the running statistics, in [0, 1]
  double epsilon = 1e-5;
  Initializer gain = Initializer::ones();
  bool track = true;  // false: no running statistics; always uses the batch's, training or not
};

namespace detail {

template <FloatingElement T>
struct RunningStatistics {
  Variable<T> mean;
  Variable<T> variance;
  Variable<std::int64_t> batches;
};

template <FloatingElement T>
RunningStatistics<T> running_statistics(ReplicaContext& replica, std::int64_t channels, std::source_location where) {
  const VariableOptions local{VariableKind::replica_local, false};
  return {replica.variable<T>("running_mean", {channels}, Initializer::zeros(), local, where),
          replica.variable<T>("running_var", {channels}, Initializer::ones(), local, where),
          replica.variable<std::int64_t>("num_batches_tracked", {}, Initializer::zeros(),
                                         {VariableKind::mirrored, false}, where)};
}

// The moments over all axes but the channels, which are kept as extents of 1.
template <FloatingElement T>
MeanAndVariance<T> batch_moments(ReplicaContext& replica, Tensor<T> x, bool across_replicas, std::source_location where) {
  const Axes axes = (x.shape().rank() == 4 ? Axes{0, 2, 3} : Axes{0}).kept();
  if (!across_replicas) return moments(x, axes, where);
  return cross_replica_moments(x, axes, {.label = replica.graph().scope() + "moments"}, where);
}

// running += momentum (batch - running). The running variance is the unbiased one (divisor: elements - 1), as in
// PyTorch.
template <FloatingElement T>
void track(const RunningStatistics<T>& running, const MeanAndVariance<T>& batch, double elements, double momentum,
           Location where) {
  Graph& graph = batch.mean.graph();
  const Shape channels = running.mean.shape();
  const auto blend = [&](const Variable<T>& variable, const Tensor<T>& value, double scale) {
    return Tensor<T>{replicator::detail::map_at(
        graph, dtype_of<T>, where,
        [&](Symbol old, Symbol now) { return old * (1 - momentum) + now * (momentum * scale); }, variable.read(),
        reshape(value, channels, where))};
  };
  running.mean.assign(blend(running.mean, batch.mean, 1));
  running.variance.assign(blend(running.variance, batch.variance, elements / (elements - 1)));
  running.batches.assign(Tensor<std::int64_t>{apply(replicator::detail::ScalarOp::add, running.batches.read().any(), 1, where)});
}

}  // namespace detail

// Batch normalisation of [N, C, H, W] or [N, C] over all axes but the channels (axis 1). Same shape.
// Variables: <name>.weight, <name>.bias (mirrored), <name>.running_mean, <name>.running_var (replica-local), all [C],
// and <name>.num_batches_tracked. The last three exist only with `track`. For bfloat16, computation and variables are
// float32.
// Throws BuildError for another rank, for one element per channel while training, and for options out of range.
// Source: Ioffe and Szegedy, "Batch normalization", 2015.
template <FloatingElement T>
Tensor<T> batch_norm(ReplicaContext& replica, Tensor<T> x, std::string_view name, const BatchNormOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(batch_norm(replica, cast<float>(x, where), name, options, where), where);
  const auto rank = x.shape().rank();
  const auto fail = [&](const std::string& problem) {
    throw BuildError{detail::layer_text(replica, "batch_norm", name, where) + ": " + problem + ", found " + x.any().type().text()};
  };
  if ((rank != 2 && rank != 4) || x.shape().elements() == 0) fail("x must be [N, C] or [N, C, H, W] and not empty");
  const auto channels = x.shape()[1];
  const auto elements = x.shape().elements() / channels * (options.across_replicas ? replica.count() : 1);
  if (!(options.momentum >= 0 && options.momentum <= 1)) fail("momentum is " + replicator::detail::number_text(options.momentum) + ": it must lie in [0, 1]");
  if ((options.training || !options.track) && elements < 2) fail("training needs more than one element for each channel");

  const auto scope = replica.scope(name);
  const Shape broadcast = rank == 4 ? Shape{1, channels, 1, 1} : Shape{1, channels};
  const auto shaped = [&](const Variable<T>& v) { return Tensor<T>{reshape(v.read(where), broadcast, where)}; };
  const auto gamma = shaped(replica.variable<T>("weight", {channels}, options.gain, {}, where));
  const auto beta = shaped(replica.variable<T>("bias", {channels}, Initializer::zeros(), {}, where));
  if (!options.track) return normalise(x, detail::batch_moments(replica, x, options.across_replicas, where), gamma, beta, options.epsilon, where);
  const auto running = detail::running_statistics<T>(replica, channels, where);
  if (!options.training)
    return normalise(x, {shaped(running.mean), shaped(running.variance)}, gamma, beta, options.epsilon, where);

  const auto batch = detail::batch_moments(replica, x, options.across_replicas, where);
  detail::track(running, batch, static_cast<double>(elements), options.momentum, where);
  return normalise(x, batch, gamma, beta, options.epsilon, where);
}

}  // namespace replicator::nn
