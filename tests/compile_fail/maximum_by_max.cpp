// SPDX-License-Identifier: Apache-2.0
// EXPECT: rp::max reduces over axes: rp::maximum(a, b) takes the larger
#include <replicator/ops/reduce.hpp>

auto step(replicator::Tensor<float> x) { return replicator::max(x, 0.0f); }
