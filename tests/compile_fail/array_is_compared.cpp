// SPDX-License-Identifier: Apache-2.0
// EXPECT: replicator: an rp::Array is no number: array.item() is the value of one with a single element
#include <replicator/replicate/per_replica.hpp>

namespace rp = replicator;

bool small(const rp::PerReplica<rp::Array<float>>& loss) { return loss[0] < 0.5f; }
