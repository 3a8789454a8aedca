// SPDX-License-Identifier: Apache-2.0
// EXPECT: replicator: nn::embedding takes indices of int32 or int64: rp::cast<std::int32_t>(indices)
#include <replicator/nn/embedding.hpp>

namespace rp = replicator;

rp::Tensor<float> step(rp::ReplicaContext& replica, rp::Tensor<float> ids) { return rp::nn::embedding(replica, ids, "e", {.entries = 10, .features = 4}); }
