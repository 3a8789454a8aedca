// SPDX-License-Identifier: Apache-2.0
// EXPECT: so it cannot decide an `if`: compute both sides and take rp::select(condition, a, b)
#include <replicator/ops/elementwise.hpp>

replicator::Tensor<float> step(replicator::Tensor<float> loss) {
  if (loss > 1) return loss;
  return -loss;
}
