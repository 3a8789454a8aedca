// SPDX-License-Identifier: Apache-2.0
// EXPECT: replicator: nn::linear takes a floating type: rp::cast<float>(x)
// NEVER: constraints not satisfied
#include <replicator/nn/nn.hpp>

namespace rp = replicator;

rp::Tensor<float> step(rp::ReplicaContext& replica, rp::Tensor<std::uint8_t> pixels) {
  return rp::cast<float>(rp::nn::linear(replica, pixels, "fc", {.features = 10}));
}
