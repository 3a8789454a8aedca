// SPDX-License-Identifier: Apache-2.0
// EXPECT: rp::concat and rp::stack take tensors of one element type: rp::cast<float>(x), for example
// NEVER: no matching function
#include <replicator/ops/movement/concat.hpp>

auto step(replicator::Tensor<float> a, replicator::Tensor<int> b) { return replicator::concat({a, b}, 0); }
