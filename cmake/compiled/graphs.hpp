// SPDX-License-Identifier: Apache-2.0
// The graphs that user files share with replicator::compiled.
#pragma once

#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/tensor.hpp>

#include <replicator/with/graphs.hpp>
