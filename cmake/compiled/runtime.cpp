// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: planning and running programs.
#define REPLICATOR_TEMPLATE extern template
#include "graphs.hpp"
#include "schedules.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/core/mark_content.hpp>
#include <replicator/runtime/execute.hpp>
#include <replicator/runtime/plan/planner.hpp>

#define REPLICATOR_TEMPLATE template
#include "runtime.hpp"
