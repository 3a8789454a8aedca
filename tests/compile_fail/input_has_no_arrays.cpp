// SPDX-License-Identifier: Apache-2.0
// EXPECT: the elements of an input must be replicator::Array<T> or std::tuple of them
#include <vector>

#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate([](const replicator::InputContext&) { return std::vector<int>{}; },
                 [](replicator::ReplicaContext&, replicator::Tensor<float> x) { return x; });
}
