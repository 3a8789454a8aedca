// SPDX-License-Identifier: Apache-2.0
// EXPECT: input_fn must be callable with (const rp::InputContext&)
// NEVER: has not been declared
#include <replicator/data/generator.hpp>
#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate(replicator::data::from_generator([] { return replicator::Array<float>{{1}}; }),
                 [](replicator::ReplicaContext&, replicator::Tensor<float> x) { return x; });
}
