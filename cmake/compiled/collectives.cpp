// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: collectives and transports.
#define REPLICATOR_TEMPLATE extern template
#include "job.hpp"
#undef REPLICATOR_TEMPLATE

#define REPLICATOR_TEMPLATE template
#include "collectives.hpp"
