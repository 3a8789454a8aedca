// SPDX-License-Identifier: Apache-2.0
// EXPECT: replicator: an rp::PerReplica has a value for each replica: rp::mean(loss) is the mean over them
#include <replicator/replicate/per_replica.hpp>

namespace rp = replicator;

bool small(const rp::PerReplica<rp::Array<float>>& loss) { return loss < 0.5; }
