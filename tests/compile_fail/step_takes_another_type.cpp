// SPDX-License-Identifier: Apache-2.0
// EXPECT: step_fn does not fit the input: it must be callable with (rp::ReplicaContext&, rp::Tensor<T>...)
#include <vector>

#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate([](const replicator::InputContext&) { return std::vector<replicator::Array<std::int32_t>>{}; },
                 [](replicator::ReplicaContext&, replicator::Tensor<float> x) { return x; });
}
