// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: the collectives alone.
#define REPLICATOR_TEMPLATE extern template
#include "collectives.hpp"
#include "job.hpp"
#undef REPLICATOR_TEMPLATE

#define REPLICATOR_TEMPLATE template
#include "world.hpp"
