// SPDX-License-Identifier: Apache-2.0
// Includes everything that a program must contain once: the engines, kernels, transports, launchers and readers of this build.
// If the folder async/ or elastic/ is missing in the source tree, programs lack that engine.
#pragma once

#include <replicator/assembly/readers.hpp>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/connect/connect_local.hpp>
#include <replicator/collectives/connect/linked_parts.hpp>
#include <replicator/collectives/simulate/run_simulation.hpp>
#include <replicator/core/mark_content.hpp>
#include <replicator/cpu/draw_first_values.hpp>
#include <replicator/cpu/kernels.hpp>
#include <replicator/engine/host_engine.hpp>
#include <replicator/engine/read_or_measure_topology.hpp>
#include <replicator/io/event_file.hpp>
#include <replicator/io/safetensors_file.hpp>
#include <replicator/job/job_inline.hpp>
#include <replicator/replicate/deployment_flags.hpp>
#include <replicator/replicate/report_signal.hpp>
#include <replicator/replicate/run_training.hpp>
#include <replicator/replicate/variable_table.hpp>
#include <replicator/replicate/weights_file.hpp>
#include <replicator/resolve/resolve.hpp>
#include <replicator/runtime/execute.hpp>
#include <replicator/runtime/plan/planner.hpp>
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
#include <replicator/job/elastic/elastic_job.hpp>
#endif
#if __has_include(<replicator/with/onednn.hpp>)
#include <replicator/with/onednn.hpp>
#endif
