// SPDX-License-Identifier: Apache-2.0
// EXPECT: is not a member of
// NEVER: input_fn must be callable
#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate([](const replicator::InputContext&) { return replicator::data::unknown("photos"); },
                 [](replicator::ReplicaContext&, replicator::Tensor<float> x) { return x; });
}
