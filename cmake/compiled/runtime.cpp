// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: running programs.
#define REPLICATOR_TEMPLATE extern template
#include "graphs.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/runtime/execute.hpp>

#define REPLICATOR_TEMPLATE template
#include "runtime.hpp"
