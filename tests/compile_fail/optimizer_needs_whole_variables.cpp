// SPDX-License-Identifier: Apache-2.0
// EXPECT: nn::sharded takes sgd, adam, adamw or rmsprop
#include <replicator/nn/optimizers/lars.hpp>
#include <replicator/nn/optimizers/sharded.hpp>

void step(replicator::ReplicaContext& replica, replicator::Tensor<float> loss) {
  replicator::nn::sharded(replicator::nn::lars({})).minimize(replica, loss);
}
