// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: resolution.
#define REPLICATOR_TEMPLATE extern template
#include "operations.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/resolve/resolve.hpp>

#define REPLICATOR_TEMPLATE template
#include "resolve.hpp"
