// SPDX-License-Identifier: Apache-2.0
// EXPECT: a functor given to rp::map must return the expression of its arguments
#include <replicator/ops/elementwise.hpp>

replicator::Tensor<float> step(replicator::Tensor<float> x) {
  return replicator::map([](auto) { return 3.0f; }, x);
}
