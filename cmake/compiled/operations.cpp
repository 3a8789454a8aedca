// SPDX-License-Identifier: Apache-2.0
// Of replicator::compiled: what files of the user's would instantiate: operations, layers, models, flags.
#include <replicator/graph/layout_copy.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/deployment.hpp>

#define REPLICATOR_TEMPLATE template
#include <replicator/with/instantiations.hpp>
