// SPDX-License-Identifier: Apache-2.0
// EXPECT: exp(replicator::Tensor<float>&)
#include <cmath>

#include <replicator/ops/elementwise.hpp>

replicator::Tensor<float> step(replicator::Tensor<float> x) { return std::exp(x); }
