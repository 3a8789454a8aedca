// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: UCX and PMIx, as far as this build has them. They register themselves.
#define REPLICATOR_TEMPLATE extern template
#include "collectives.hpp"
#include "job.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/collectives/connect/linked_parts.hpp>
