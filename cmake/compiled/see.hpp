// SPDX-License-Identifier: Apache-2.0
// Instantiates the reports about programs and steps.
#pragma once

#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

REPLICATOR_TEMPLATE bool calibrate<>(ExecutableCache&, DeviceKind, MachineFigures&);
REPLICATOR_TEMPLATE std::string limits_text<>(DeviceKind, const MachineFigures&, bool);
REPLICATOR_TEMPLATE std::string explain<>(const Resolution&, const Program&, const DeviceTrace*, const ExplainOptions&);
REPLICATOR_TEMPLATE std::string capture_text<>(const Resolution&, const Program&);
REPLICATOR_TEMPLATE std::string copies_text<>(const Program&);
REPLICATOR_TEMPLATE std::string plan_part<>(const PlanView&);
REPLICATOR_TEMPLATE std::string plan_json<>(const std::vector<std::string>&, std::size_t);
REPLICATOR_TEMPLATE std::string trace_events<>(const ProcessTrace&);
REPLICATOR_TEMPLATE std::string trace_file<>(const std::vector<std::string>&, const std::vector<std::int64_t>&);
REPLICATOR_TEMPLATE std::string arrival_summary<>(const std::vector<Arrival>&, const std::vector<std::pair<std::uint64_t, std::string>>&);

}  // namespace replicator::detail
