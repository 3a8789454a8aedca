// SPDX-License-Identifier: Apache-2.0
// EXPECT: rp::min reduces over axes: rp::minimum(a, b) takes the smaller
#include <replicator/ops/reduce.hpp>

auto step(replicator::Tensor<float> x, replicator::Tensor<float> y) { return replicator::min(x, y); }
