// SPDX-License-Identifier: Apache-2.0
// EXPECT: the reduction over replicas is rp::Reduction::sum, mean, min or max
// NEVER: no matching function
#include <replicator/resolve/collective_calls.hpp>

auto step(replicator::Tensor<float> x) { return replicator::all_reduce(x, "mean"); }
