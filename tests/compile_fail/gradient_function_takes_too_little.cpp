// SPDX-License-Identifier: Apache-2.0
// EXPECT: must take the arguments, the results, and the gradient of each result: [](auto x, auto y, auto dy)
#include <replicator/ops/custom_gradient.hpp>

replicator::Tensor<float> step(replicator::Tensor<float> x) {
  return replicator::custom_gradient([](auto a) { return a * a; }, [](auto a, auto dy) { return dy * a; })(x);
}
