// SPDX-License-Identifier: Apache-2.0
// EXPECT: an input must be a C++20 input range
#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate([](const replicator::InputContext&) { return 3; }, [](replicator::ReplicaContext&, replicator::Tensor<float> x) { return x; });
}
