// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: collectives and transports.
#define REPLICATOR_TEMPLATE extern template
#include "job.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/connect/connect_hosts.hpp>
#include <replicator/collectives/connect/connect_local.hpp>
#include <replicator/collectives/simulate/run_simulation.hpp>

#define REPLICATOR_TEMPLATE template
#include "collectives.hpp"
