// SPDX-License-Identifier: Apache-2.0
// EXPECT: has no member named
// NEVER: no matching function for call to
#include <replicator/replicate/replicator.hpp>

int main() {
  replicator::Replicator repl;
  repl.replicate([](replicator::ReplicaContext& replica) { return replica.identity(); });
}
