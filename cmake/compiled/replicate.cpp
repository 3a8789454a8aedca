// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: what programs call besides their steps.
#define REPLICATOR_TEMPLATE template
#include "replicate.hpp"
#include "safetensors.hpp"
