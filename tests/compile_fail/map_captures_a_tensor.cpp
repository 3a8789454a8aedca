// SPDX-License-Identifier: Apache-2.0
// EXPECT: give it the rp::Tensor as an argument, as in rp::map(f, x, w)
#include <replicator/ops/elementwise.hpp>

auto step(replicator::Tensor<float> x, replicator::Tensor<float> w) {
  return replicator::map([&](auto a) { return a * w; }, x);
}
