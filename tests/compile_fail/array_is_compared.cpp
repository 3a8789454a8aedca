// SPDX-License-Identifier: Apache-2.0
// EXPECT: use of deleted function
// NEVER: no match for
#include <replicator/replicate/per_replica.hpp>

namespace rp = replicator;

bool small(const rp::PerReplica<rp::Array<float>>& loss) { return loss[0] < 0.5f; }
