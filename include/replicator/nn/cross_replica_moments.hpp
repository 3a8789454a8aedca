// SPDX-License-Identifier: Apache-2.0
// Mean and variance over the batches of all replicas.
#pragma once

#include <source_location>

#include <replicator/collectives/placeholders.hpp>
#include <replicator/ops/normalisation.hpp>

namespace replicator::nn {

// The moments of the values of all replicas together. Two all-reduces: the mean, then the variance around it, which
// does not cancel as the difference of squares would. Throws BuildError for an axis that does not exist.
template <FloatingElement T>
MeanAndVariance<T> cross_replica_moments(Tensor<T> x, const Axes& axes = {}, const CollectiveOptions& options = {},
                                         std::source_location where = std::source_location::current()) {
  const auto local = moments(x, axes, where);
  CollectiveOptions labelled = options;
  if (!options.label.empty()) labelled.label = options.label + "/mean";
  const auto mean = all_reduce(local.mean, Reduction::mean, labelled, where);
  const Tensor<T> around{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v, Symbol own, Symbol all) { return v + (own - all) * (own - all); },
      local.variance, local.mean, mean)};
  if (!options.label.empty()) labelled.label = options.label + "/variance";
  return {mean, all_reduce(around, Reduction::mean, labelled, where)};
}

}  // namespace replicator::nn
