// SPDX-License-Identifier: Apache-2.0
// EXPECT: a functor given to rp::map must take an rp::Symbol for each tensor
#include <replicator/ops/elementwise.hpp>

replicator::Tensor<float> step(replicator::Tensor<float> x) {
  return replicator::map([](float a) { return 2 * a; }, x);
}
