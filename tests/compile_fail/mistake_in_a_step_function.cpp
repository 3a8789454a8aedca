// SPDX-License-Identifier: Apache-2.0
// EXPECT: has no member named
// NEVER: step_fn does not fit the input
#include <vector>

#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate([](const replicator::InputContext&) { return std::vector<replicator::Array<float>>{}; },
                 [](replicator::ReplicaContext&, replicator::Tensor<float> x) { return replicator::sum(x.squared()); });
}
