// SPDX-License-Identifier: Apache-2.0
// The one file of replicator::compiled.
#include <replicator/assembly/everything.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>

#define REPLICATOR_TEMPLATE template
#include "components/compiled/replicator/with/instantiations.hpp"
