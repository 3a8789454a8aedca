// SPDX-License-Identifier: Apache-2.0
// EXPECT: a rp::Tensor takes no [ ]: rp::slice_axis(x, 0, begin, end) takes a part, rp::unbind(x) all rows
#include <replicator/graph/tensor.hpp>

auto step(replicator::Tensor<float> x) { return x[0] + 1; }
