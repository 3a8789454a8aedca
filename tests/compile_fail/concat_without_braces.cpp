// SPDX-License-Identifier: Apache-2.0
// EXPECT: rp::concat and rp::stack take their tensors in braces, and an axis: rp::concat({a, b}, 0)
// NEVER: no matching function
#include <replicator/ops/movement/concat.hpp>

auto step(replicator::Tensor<float> a, replicator::Tensor<float> b) { return replicator::concat(a, b); }
