// SPDX-License-Identifier: Apache-2.0
// EXPECT: calls a function that takes no rp::Symbol; an error above names it
// NEVER: must take an rp::Symbol for each tensor
#include <replicator/ops/elementwise.hpp>

float smooth(float x);

replicator::Tensor<float> step(replicator::Tensor<float> x) {
  return replicator::map([](auto a) { return smooth(a); }, x);
}
