// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: reports.
#define REPLICATOR_TEMPLATE extern template
#include "collectives.hpp"
#include "graphs.hpp"
#undef REPLICATOR_TEMPLATE

#define REPLICATOR_TEMPLATE template
#include "see.hpp"
