// SPDX-License-Identifier: Apache-2.0
// EXPECT: a reduction over replicas needs its kind: rp::all_reduce(x, rp::Reduction::sum), or mean, min or max
// NEVER: no matching function
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/resolve/nests.hpp>

auto step(replicator::Tensor<float> x) { return replicator::all_reduce(x); }
