// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::compiled: replicator.hpp looks for it. What it declares is
// compiled there too, so that no file of the user's has to.
#pragma once

#include <replicator/graph/layout_copy.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>

#define REPLICATOR_TEMPLATE extern template
#include <replicator/with/instantiations.hpp>
#undef REPLICATOR_TEMPLATE
