// SPDX-License-Identifier: Apache-2.0
// EXPECT: step_fn must return a rp::Tensor, a std::tuple of them, or void
#include <vector>

#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate([](const replicator::InputContext&) { return std::vector<replicator::Array<float>>{}; },
                 [](replicator::ReplicaContext&, replicator::Tensor<float>) { return 3; });
}
