// SPDX-License-Identifier: Apache-2.0
// EXPECT: an rp::Array is no rp::Tensor: rp::constant(replica, array) makes it one
#include <replicator/ops/elementwise.hpp>

void step(replicator::Tensor<float> x, const replicator::Array<float>& weights) {
  weights* x;
}
