// SPDX-License-Identifier: Apache-2.0
// EXPECT: softmax_cross_entropy takes the number of each example's class as std::int32_t or std::int64_t: rp::cast<std::int32_t>(labels)
#include <replicator/ops/losses/loss.hpp>

replicator::Tensor<float> step(replicator::Tensor<float> logits, replicator::Tensor<float> labels) {
  return replicator::softmax_cross_entropy(logits, labels);
}
