// SPDX-License-Identifier: Apache-2.0
// EXPECT: wrap_optimizer is inside another optimizer, so gradients would be averaged over the replicas twice: put it outside
#include <replicator/nn/optimizers/clip.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/resolve/replica_context.hpp>
namespace rp = replicator;

void step(rp::ReplicaContext& replica, rp::Tensor<float> loss) {
  rp::nn::clipped(rp::nn::wrap_optimizer(rp::nn::sgd({.learning_rate = 0.1})), 1.0).minimize(replica, loss);
}
