// SPDX-License-Identifier: Apache-2.0
// EXPECT: an optimizer needs `void apply_gradients(rp::ReplicaContext&
// NEVER: no matching function
#include <source_location>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>

struct Mine {
  void apply_gradients(replicator::ReplicaContext&, const std::vector<replicator::Variable<float>>&, const std::vector<replicator::Tensor<float>>&,
                       std::source_location) {}
};

void step(replicator::ReplicaContext& replica, replicator::Tensor<float> loss) { replicator::nn::wrap_optimizer(Mine{}).minimize(replica, loss); }
