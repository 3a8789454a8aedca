// SPDX-License-Identifier: Apache-2.0
// EXPECT: input_fn must be callable with (const rp::InputContext&)
#include <vector>

#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate([] { return std::vector<replicator::Array<float>>{}; }, [](replicator::ReplicaContext&, replicator::Tensor<float> x) { return x; });
}
