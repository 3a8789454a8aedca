// SPDX-License-Identifier: Apache-2.0
// Instantiates resolution, with its passes over graphs.
#pragma once

#include <replicator/graph/dot.hpp>
#include <replicator/resolve/resolution_dot.hpp>
#include <replicator/resolve/resolve.hpp>

namespace replicator::detail {

REPLICATOR_TEMPLATE Resolution resolve<>(std::span<const Graph>, const ResolveOptions&);
REPLICATOR_TEMPLATE std::string dot<>(const Resolution&, int);
REPLICATOR_TEMPLATE std::string dot<>(std::span<const Graph>);

}  // namespace replicator::detail
