// SPDX-License-Identifier: Apache-2.0
// EXPECT: replicator: exp takes a floating type: rp::cast<float>(x)
// NEVER: constraints not satisfied
#include <replicator/ops/ops.hpp>

namespace rp = replicator;

auto step(rp::Tensor<int> x) { return rp::exp(x); }
