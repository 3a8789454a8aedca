// SPDX-License-Identifier: Apache-2.0
// EXPECT: w.assign(x) gives a variable the value x
#include <replicator/resolve/variable.hpp>

void step(replicator::Variable<float> w, replicator::Tensor<float> x) { w = x; }
