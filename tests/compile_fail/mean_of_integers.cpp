// SPDX-License-Identifier: Apache-2.0
// EXPECT: mean takes a floating type: rp::mean(rp::cast<float>(x))
#include <replicator/ops/reduce.hpp>

replicator::Tensor<int> step(replicator::Tensor<int> x) { return replicator::mean(x); }
