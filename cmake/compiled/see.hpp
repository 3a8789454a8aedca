// SPDX-License-Identifier: Apache-2.0
// Instantiates the reports about programs and steps.
#pragma once

#include <replicator/runtime/see/calibrate.hpp>
#include <replicator/runtime/see/capture_text.hpp>
#include <replicator/runtime/see/copies_text.hpp>
#include <replicator/runtime/see/explain.hpp>
#include <replicator/runtime/see/plan_json.hpp>
#include <replicator/runtime/see/straggler_report.hpp>
#include <replicator/runtime/see/trace_json.hpp>

namespace replicator::detail {

REPLICATOR_TEMPLATE bool calibrate<>(ExecutableCache&, DeviceKind, MachineFigures&);
REPLICATOR_TEMPLATE std::string explain<>(const Resolution&, const Program&, const DeviceTrace*, const ExplainOptions&);
REPLICATOR_TEMPLATE std::string capture_text<>(const Resolution&, const Program&);
REPLICATOR_TEMPLATE std::string copies_text<>(const Program&);
REPLICATOR_TEMPLATE std::string plan_part<>(const PlanView&);
REPLICATOR_TEMPLATE std::string trace_events<>(const ProcessTrace&);
REPLICATOR_TEMPLATE std::string arrival_summary<>(const std::vector<Arrival>&, const std::vector<std::pair<std::uint64_t, std::string>>&);

}  // namespace replicator::detail
