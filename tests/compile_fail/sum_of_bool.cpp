// SPDX-License-Identifier: Apache-2.0
// EXPECT: a sum of bool is no number: rp::sum(rp::cast<float>(x)) counts
#include <replicator/ops/reduce.hpp>

auto step(replicator::Tensor<bool> mask) { return replicator::sum(mask); }
