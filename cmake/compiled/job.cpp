// SPDX-License-Identifier: Apache-2.0
// Of replicator::compiled: how processes meet.
#define REPLICATOR_TEMPLATE template
#include "job.hpp"
