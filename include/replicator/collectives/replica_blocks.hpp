// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <replicator/core/error.hpp>
#include <string>

namespace replicator::collectives {

// Replicas dealt to ranks in contiguous blocks whose sizes differ by at most one, the bigger ones first.
class ReplicaBlocks {
 public:
  // Throws BuildError unless 1 <= ranks <= replicas.
  ReplicaBlocks(int replicas, int ranks) : replicas_{replicas}, ranks_{ranks} {
    if (ranks < 1 || ranks > replicas)
      throw BuildError{std::to_string(replicas) + " replicas cannot be dealt to " + std::to_string(ranks) +
                       " devices: every device needs at least one"};
  }
  int replicas() const { return replicas_; }
  int ranks() const { return ranks_; }
  int begin(int rank) const {
    const int more = replicas_ % ranks_;
    return rank * (replicas_ / ranks_) + (rank < more ? rank : more);
  }
  int end(int rank) const { return begin(rank + 1); }
  int count(int rank) const { return end(rank) - begin(rank); }
  int rank_of(int replica) const {
    int rank = 0;
    while (end(rank) <= replica) ++rank;
    return rank;
  }
  friend bool operator==(const ReplicaBlocks&, const ReplicaBlocks&) = default;

 private:
  int replicas_;
  int ranks_;
};

}  // namespace replicator::collectives
