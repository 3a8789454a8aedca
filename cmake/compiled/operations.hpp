// SPDX-License-Identifier: Apache-2.0
// The operations that user files share with replicator::compiled.
#pragma once

#include <replicator/graph/layout_copy.hpp>
#include <replicator/ops/ops.hpp>

#include <replicator/with/operations.hpp>
