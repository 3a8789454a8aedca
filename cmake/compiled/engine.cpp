// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: the engines and their reports. They call all other units and share most of their own
// code, hence a single unit.
#define REPLICATOR_TEMPLATE extern template
#include "collectives.hpp"
#include "elastic_job.hpp"
#include "files.hpp"
#include "graphs.hpp"
#include "job.hpp"
#include "resolve.hpp"
#include "runtime.hpp"
#include "safetensors.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/engine/host_engine.hpp>
#include <replicator/runtime/see/calibrate.hpp>
#include <replicator/runtime/see/capture_text.hpp>
#include <replicator/runtime/see/copies_text.hpp>
#include <replicator/runtime/see/explain.hpp>
#include <replicator/runtime/see/plan_json.hpp>
#include <replicator/runtime/see/straggler_report.hpp>
#include <replicator/runtime/see/trace_json.hpp>

#if __has_include(<replicator/async/async_engine.hpp>)
#include <replicator/async/async_engine.hpp>
#endif
#if __has_include(<replicator/elastic/elastic_engine.hpp>)
#include <replicator/elastic/elastic_engine.hpp>
#endif

#define REPLICATOR_TEMPLATE template
#include "see.hpp"
