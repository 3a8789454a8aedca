// SPDX-License-Identifier: Apache-2.0
// Mean and variance over the batches of all replicas together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/ops/normalisation.hpp>
#include <replicator/resolve/collective_calls.hpp>

namespace replicator::nn {

// The moments of the values of all replicas (of the group) together. Every replica must have equally many values. Takes
// two all-reduces: the mean, then the variance around it. Unlike the difference of squares, that does not cancel.
// Throws BuildError for an axis that does not exist. Unequal numbers of values are refused as a mismatch of
// collectives.
template <FloatingElement T>
MeanAndVariance<T> cross_replica_moments(Tensor<T> x, const Axes& axes = {}, const CollectiveOptions& options = {},
                                         std::source_location where = std::source_location::current()) {
  const auto local = moments(x, axes, where);
  replicator::detail::Placeholder of_means{replicator::detail::CollectiveKind::all_reduce, Reduction::mean, 0, options.any_order, options.group};
  of_means.stands_for = x.shape().elements() / std::max<std::int64_t>(local.mean.shape().elements(), 1);
  const auto mean_of = [&](const Tensor<T>& value, std::string_view what) {
    return Tensor<T>{replicator::detail::placeholder_node(value, of_means, where, options.label.empty() ? std::string{} : options.label + std::string{what})};
  };
  const auto mean = mean_of(local.mean, "/mean");
  const Tensor<T> around{replicator::detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol v, Symbol own, Symbol all) { return v + (own - all) * (own - all); },
      local.variance, local.mean, mean)};
  return {mean, mean_of(around, "/variance")};
}

}  // namespace replicator::nn
