// SPDX-License-Identifier: Apache-2.0
// EXPECT: rp::Tensors of two element types do not mix: rp::cast<T>(x) gives one of them the type of the other
#include <replicator/ops/elementwise.hpp>

void step(replicator::Tensor<float> x, replicator::Tensor<int> weights) {
  const auto weighed = replicator::map([](auto a) { return a + 1; }, x) * weights;
}
