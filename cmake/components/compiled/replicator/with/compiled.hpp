// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::compiled; replicator.hpp looks for it. Its declarations
// tell user files which code replicator::compiled contains, so that they do not compile it again.
#pragma once

#include <replicator/graph/layout_copy.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/replicator.hpp>

#define REPLICATOR_TEMPLATE extern template
#include <replicator/with/instantiations.hpp>
#undef REPLICATOR_TEMPLATE
