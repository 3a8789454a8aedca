// SPDX-License-Identifier: Apache-2.0
// Operations, as files of the user's have them.
#pragma once

#include <replicator/graph/layout_copy.hpp>
#include <replicator/ops/ops.hpp>

#include <replicator/with/operations.hpp>
