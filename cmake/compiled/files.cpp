// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: files.
#define REPLICATOR_TEMPLATE extern template
#include "collectives.hpp"
#include "job.hpp"
#include "safetensors.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/engine/read_or_measure_topology.hpp>

#define REPLICATOR_TEMPLATE template
#include "files.hpp"
