// SPDX-License-Identifier: Apache-2.0
// EXPECT: rp::Tensors of two element types do not mix: rp::cast<T>(x) gives one of them the type of the other
// NEVER: no matching function
#include <replicator/ops/matmul.hpp>

auto step(replicator::Tensor<float> a, replicator::Tensor<double> b) { return replicator::matmul(a, b, {.transpose_b = true}); }
