// SPDX-License-Identifier: Apache-2.0
// EXPECT: a variable needs its first value: replica.variable<float>(name, shape, rp::Initializer::zeros())
// NEVER: no matching function
#include <replicator/resolve/replica_context.hpp>

auto step(replicator::ReplicaContext& replica) { return replica.variable<float>("w", {3}); }
