// SPDX-License-Identifier: Apache-2.0
// EXPECT: functions_in_rp_map_are_called_without_std
// NEVER: must take an rp::Symbol for each tensor
#include <cmath>

#include <replicator/ops/elementwise.hpp>

replicator::Tensor<float> step(replicator::Tensor<float> x) {
  return replicator::map([](auto a) { return std::exp(a); }, x);
}
