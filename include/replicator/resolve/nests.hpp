// SPDX-License-Identifier: Apache-2.0
// Collectives over nests of tensors (graph/nest.hpp). Each tensor gets its own placeholder, labelled by its path in the
// nest. Resolution merges small all-reduces into buckets. Attributes, roots and errors are those for a single tensor.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include <replicator/graph/nest.hpp>
#include <replicator/resolve/all_to_all.hpp>
#include <replicator/resolve/collective_calls.hpp>

namespace replicator {

namespace detail {
// Applies `collective(tensor, options)` to each tensor of the nest.
template <TensorNest N, class Collective>
N collect_nest(const N& nest, const CollectiveOptions& options, Collective collective) {
  return map_nest(nest, options.label, [&](const auto& tensor, const std::string& path) {
    CollectiveOptions own = options;
    own.label = path;
    return collective(tensor, own);
  });
}
}  // namespace detail

// all_reduce of each tensor of a nest; the result has the same form. Messages name a tensor by options.label and its
// path.
template <TensorNest N>
N all_reduce(const N& nest, Reduction reduction, const CollectiveOptions& options = {},
             std::source_location where = std::source_location::current()) {
  return detail::collect_nest(nest, options, [&](const auto& x, const CollectiveOptions& own) { return all_reduce(x, reduction, own, where); });
}
// all_gather of each tensor of a nest; the result has the same form.
template <TensorNest N>
N all_gather(const N& nest, const CollectiveOptions& options = {}, std::source_location where = std::source_location::current()) {
  return detail::collect_nest(nest, options, [&](const auto& x, const CollectiveOptions& own) { return all_gather(x, own, where); });
}
// reduce_scatter of each tensor of a nest; the result has the same form.
template <TensorNest N>
N reduce_scatter(const N& nest, Reduction reduction, const CollectiveOptions& options = {},
                 std::source_location where = std::source_location::current()) {
  return detail::collect_nest(nest, options, [&](const auto& x, const CollectiveOptions& own) { return reduce_scatter(x, reduction, own, where); });
}
// broadcast of each tensor of a nest; the result has the same form.
template <TensorNest N>
N broadcast(const N& nest, int root, const CollectiveOptions& options = {}, std::source_location where = std::source_location::current()) {
  return detail::collect_nest(nest, options, [&](const auto& x, const CollectiveOptions& own) { return broadcast(x, root, own, where); });
}
// all_to_all of each tensor of a nest; the result has the same form.
template <TensorNest N>
N all_to_all(const N& nest, std::int64_t split = 0, std::int64_t join = 0, const CollectiveOptions& options = {},
             std::source_location where = std::source_location::current()) {
  return detail::collect_nest(nest, options, [&](const auto& x, const CollectiveOptions& own) { return all_to_all(x, split, join, own, where); });
}

}  // namespace replicator
