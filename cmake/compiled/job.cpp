// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: the rendezvous of processes.
#define REPLICATOR_TEMPLATE template
#include "job.hpp"
#include "elastic_job.hpp"
