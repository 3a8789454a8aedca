// SPDX-License-Identifier: Apache-2.0
// The operations that user files share with replicator::compiled.
#pragma once

#include <replicator/ops/ops.hpp>
#include "graphs.hpp"

#include <replicator/with/operations.hpp>
