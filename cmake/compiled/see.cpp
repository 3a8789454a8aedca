// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: reports.
#define REPLICATOR_TEMPLATE extern template
#include "graphs.hpp"
#include "schedules.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/runtime/see/calibrate.hpp>
#include <replicator/runtime/see/capture_text.hpp>
#include <replicator/runtime/see/copies_text.hpp>
#include <replicator/runtime/see/explain.hpp>
#include <replicator/runtime/see/plan_json.hpp>
#include <replicator/runtime/see/straggler_report.hpp>
#include <replicator/runtime/see/trace_json.hpp>

#define REPLICATOR_TEMPLATE template
#include "see.hpp"
