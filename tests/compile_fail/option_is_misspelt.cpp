// SPDX-License-Identifier: Apache-2.0
// EXPECT: has no non-static data member named
// docs/tutorial.md promises it where the name of the struct is written.
#include <replicator/nn/optimizers/sgd.hpp>

int main() { replicator::nn::sgd(replicator::nn::SgdOptions{.learning_rat = 0.1}); }
