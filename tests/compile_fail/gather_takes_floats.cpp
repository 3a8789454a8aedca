// SPDX-License-Identifier: Apache-2.0
// EXPECT: replicator: gather takes indices of int32 or int64: rp::cast<std::int32_t>(indices)
#include <replicator/ops/gather.hpp>

namespace rp = replicator;

rp::Tensor<float> step(rp::Tensor<float> x, rp::Tensor<float> places) { return rp::gather(x, places); }
