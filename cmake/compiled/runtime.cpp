// SPDX-License-Identifier: Apache-2.0
// Of replicator::compiled: programs.
#define REPLICATOR_TEMPLATE extern template
#include "collectives.hpp"
#include "operations.hpp"
#undef REPLICATOR_TEMPLATE

#define REPLICATOR_TEMPLATE template
#include "runtime.hpp"
