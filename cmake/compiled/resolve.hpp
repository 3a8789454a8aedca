// SPDX-License-Identifier: Apache-2.0
// Instantiates resolution, with its passes over graphs.
#pragma once

#include <replicator/graph/dot.hpp>
#include <replicator/graph/graph_digest.hpp>
#include <replicator/resolve/graph_outline.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/resolve/resolution_dot.hpp>

namespace replicator::detail {

REPLICATOR_TEMPLATE Digest digest_of<>(const Graph&);
REPLICATOR_TEMPLATE GraphOutline outline_of<>(const Graph&);
REPLICATOR_TEMPLATE std::string difference_of_replicas<>(std::span<const Graph* const>);
REPLICATOR_TEMPLATE Resolution resolve<>(std::span<const Graph>, const ResolveOptions&);
REPLICATOR_TEMPLATE std::string dot<>(const Resolution&, int);
REPLICATOR_TEMPLATE std::string dot<>(std::span<const Graph>);

}  // namespace replicator::detail
