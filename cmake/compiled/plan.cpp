// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: planning programs.
#define REPLICATOR_TEMPLATE extern template
#include "graphs.hpp"
#include "schedules.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/runtime/plan/planner.hpp>

template replicator::detail::Program replicator::detail::plan<>(const replicator::detail::PlanRequest&);
