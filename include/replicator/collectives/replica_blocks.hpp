// SPDX-License-Identifier: Apache-2.0
// Deals things into contiguous blocks. Their sizes differ by at most one; the larger blocks come first.
#pragma once

#include <algorithm>
#include <replicator/core/error.hpp>
#include <string>

namespace replicator::detail::collectives {

// The first of `count` things in block `index` of `blocks`. Returns `count` for index == blocks.
constexpr int block_begin(int count, int blocks, int index) {
  return index * (count / blocks) + std::min(index, count % blocks);
}

// The block of replicas that each rank holds.
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
