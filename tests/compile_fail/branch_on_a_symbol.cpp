// SPDX-License-Identifier: Apache-2.0
// EXPECT: it cannot branch on a value; use rp::select(condition, a, b)
#include <replicator/ops/elementwise.hpp>

replicator::Tensor<float> step(replicator::Tensor<float> x) {
  return replicator::map([](auto a) { return a > 0 ? a : -a; }, x);
}
