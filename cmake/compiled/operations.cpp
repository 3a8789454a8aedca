// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: instantiates operations, layers and models, so that user files need not compile them.
#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/map_gradient.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/replicator.hpp>

#define REPLICATOR_TEMPLATE template
#include <replicator/with/instantiations.hpp>
