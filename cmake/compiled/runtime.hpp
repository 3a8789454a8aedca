// SPDX-License-Identifier: Apache-2.0
// Instantiates lowering, planning and running programs, and marks of values.
#pragma once

#include <replicator/core/content_mark.hpp>
#include <replicator/runtime/execution_options.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/runtime/plan/plan_request.hpp>

namespace replicator::detail {

REPLICATOR_TEMPLATE LoweredGraph lower<>(const GraphClass&, DeviceKind, ExecutableCache&);
REPLICATOR_TEMPLATE Program plan<>(const PlanRequest&);
REPLICATOR_TEMPLATE void execute<>(Program&, InputStage::Inputs, const ExecutionOptions&);
REPLICATOR_TEMPLATE std::uint64_t content_mark<>(std::span<const std::byte>);

}  // namespace replicator::detail
