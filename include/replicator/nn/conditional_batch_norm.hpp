// SPDX-License-Identifier: Apache-2.0
// Conditional batch normalisation: gain and bias depend on the class of each example.
#pragma once

#include <cstdint>
#include <source_location>
#include <string_view>

#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/embedding.hpp>
#include <replicator/nn/layer_text.hpp>

namespace replicator::nn {

struct ConditionalBatchNormOptions {
  std::int64_t classes = 0;      // must be given
  bool across_replicas = false;  // statistics over the batches of all replicas together
  double epsilon = 1e-5;
};

// Normalises x [N, C, H, W] by the statistics of its batch, over all classes together. Example n then gets the gain and
// bias of class labels[n]; labels are [N], in [0, classes). Same shape. There are no running statistics: for sampling,
// use batches as large as those of training.
// Variables: <name>.gain.weight (initially 1) and <name>.bias.weight (0), both [classes, C]. For bfloat16, computation
// and variables are float32.
// Throws BuildError if the shapes do not fit, for one element per channel, and for an epsilon that is negative or not
// finite. A label out of range throws DataError in the step.
// Source: Dumoulin, Shlens, Kudlur, "A learned representation for artistic style", 2017; Miyato and Koyama, 2018.
template <FloatingElement T, IndexElement I>
Tensor<T> conditional_batch_norm(ReplicaContext& replica, Tensor<T> x, Tensor<I> labels, std::string_view name,
                                 const ConditionalBatchNormOptions& options,
                                 std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return cast<T>(conditional_batch_norm(replica, cast<float>(x, where), labels, name, options, where), where);
  const Shape shape = x.shape();
  if (shape.rank() != 4 || labels.shape() != Shape{shape[0]} || options.classes < 1 ||
      shape.elements() * (options.across_replicas ? replica.count() : 1) < 2 * shape[1])
    throw BuildError{detail::layer_text(replica, "conditional_batch_norm", name, where) + ": x must be [N, C, H, W] with more than one element for each channel, labels [N] and " +
                     "classes at least 1; found " + x.any().type().text() + ", " + labels.any().type().text() + " and " +
                     std::to_string(options.classes) + " classes"};
  const auto scope = replica.scope(name);
  const auto of_class = [&](std::string_view what, Initializer first) {
    const auto rows = embedding<T>(replica, labels, what, {.entries = options.classes, .features = shape[1], .initializer = first}, where);
    return Tensor<T>{reshape(rows.any(), Shape{shape[0], shape[1], 1, 1}, where)};
  };
  const auto gain = of_class("gain", Initializer::ones());
  const auto bias = of_class("bias", Initializer::zeros());
  return normalise(x, detail::batch_moments(replica, x, options.across_replicas, where), gain, bias, options.epsilon, where);
}

}  // namespace replicator::nn
