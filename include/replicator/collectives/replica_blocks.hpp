// SPDX-License-Identifier: Apache-2.0
// How things are dealt in contiguous blocks whose sizes differ by at most one, the bigger ones first.
#pragma once

#include <algorithm>
#include <replicator/core/error.hpp>
#include <string>

namespace replicator::detail::collectives {

// The first of `count` things that is in block `index` of so many; `count` itself for index == blocks.
constexpr int block_begin(int count, int blocks, int index) {
  return index * (count / blocks) + std::min(index, count % blocks);
}

// Replicas dealt to ranks.
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
  int begin(int rank) const { return block_begin(replicas_, ranks_, rank); }
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

}  // namespace replicator::detail::collectives
