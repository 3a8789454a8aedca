// SPDX-License-Identifier: Apache-2.0
// Instantiates lowering and running programs, and the initial values of variables.
#pragma once

#include <replicator/runtime/execution_options.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

REPLICATOR_TEMPLATE LoweredGraph lower<>(const GraphClass&, DeviceKind, ExecutableCache&);
REPLICATOR_TEMPLATE void execute<>(Program&, InputStage::Inputs, const ExecutionOptions&);
REPLICATOR_TEMPLATE AnyArray initial_value<>(const VariableDeclaration&, std::uint64_t, int, const StagingSupport*);

}  // namespace replicator::detail
