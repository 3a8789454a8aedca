// SPDX-License-Identifier: Apache-2.0
// EXPECT: rp::Tensors of two element types do not mix
#include <replicator/ops/elementwise.hpp>

void step(replicator::Tensor<float> x, replicator::Tensor<int> labels) { x += labels; }
