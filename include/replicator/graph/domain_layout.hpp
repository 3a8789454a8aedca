// SPDX-License-Identifier: Apache-2.0
// Chooses the memory layout in which a kernel over a domain (elementwise or reduction) takes its inputs.
#pragma once

#include <cstddef>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/graph/kernel.hpp>

namespace replicator::detail {

// The layout in which a kernel walks its domain. Among the inputs that span the domain, it is the first dense layout that
// is not plain; otherwise plain.
inline Layout domain_layout(const KernelRequest& request, const Shape& domain) {
  for (std::size_t i = 0; i < request.inputs.size(); ++i)
    if (request.inputs[i].shape == domain && !request.offered[i].plain && is_dense(request.offered[i], domain))
      return request.offered[i];
  return {};
}

// The layouts to demand: `layout` for inputs that span the domain, plain for smaller ones.
inline std::vector<Layout> demanded_layouts(const KernelRequest& request, const Shape& domain, const Layout& layout) {
  std::vector<Layout> result;
  for (const auto& input : request.inputs) result.push_back(input.shape == domain ? layout : Layout{});
  return result;
}

}  // namespace replicator::detail
