// SPDX-License-Identifier: Apache-2.0
// EXPECT: rp::Tensors of two element types do not mix
#include <replicator/ops/elementwise.hpp>

replicator::Tensor<bool> step(replicator::Tensor<int> found, replicator::Tensor<std::int64_t> labels) { return found == labels; }
