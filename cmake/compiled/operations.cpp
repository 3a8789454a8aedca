// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: the operations, layers, models and parts of steps that user files would otherwise instantiate.
#include <replicator/graph/layout_copy.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/replicator.hpp>

#define REPLICATOR_TEMPLATE template
#include <replicator/with/instantiations.hpp>
