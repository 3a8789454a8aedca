// SPDX-License-Identifier: Apache-2.0
// The order in which a rank folds the values of its own replicas into its partials, while they are computed.
#pragma once

#include <algorithm>
#include <replicator/collectives/grouping.hpp>
#include <vector>

namespace replicator::detail::collectives {

// A plan for folding the leaves of a rank's block, which arrive in ascending order. Pure data, made at plan time. Leaf i is
// written to the buffer `leaves[i].buffer`; its folds follow at once, each `into = combine(into, from)`. Afterwards `from`
// is free. Partial p ends in buffer p (the collective's input(p)); the buffers behind the partials are temporary.
//
// Besides finished partials at most ceil(log2 m) + 1 buffers are live for m replicas. Replicas of several groups arrive
// interleaved, so each group has its own temporaries.
class LocalFold {
 public:
  struct Fold {
    int into;
    int from;
  };
  struct Leaf {
    int replica;
    int buffer;
    std::vector<Fold> folds;
  };

  LocalFold(int replicas, int begin, int end) : partials_{maximal_subtrees(replicas, begin, end)} {
    for (int p = 0; p < static_cast<int>(partials_.size()); ++p) descend(partials_[static_cast<std::size_t>(p)], p, 0);
  }
  // For a rank with members of `groups`, which list all replicas.
  LocalFold(const ReplicaBlocks& blocks, const Groups& groups, int rank) : partials_{partials_on(blocks, groups, rank)} {
    int group = -1, used = 0;
    for (int p = 0; p < static_cast<int>(partials_.size()); ++p) {
      const TreeNode& node = partials_[static_cast<std::size_t>(p)];
      const int next = groups.group_of(groups.replica_at(node.begin));
      if (next != group) used = temporaries_;
      group = next;
      descend(node, p, used);
    }
    for (Leaf& leaf : leaves_) leaf.replica = groups.replica_at(leaf.replica);
    std::sort(leaves_.begin(), leaves_.end(), [](const Leaf& a, const Leaf& b) { return a.replica < b.replica; });
  }

  const std::vector<TreeNode>& partials() const { return partials_; }
  const std::vector<Leaf>& leaves() const { return leaves_; }  // by replica, ascending
  // Number of buffers beyond the partials.
  int temporaries() const { return temporaries_; }

 private:
  // Computes `node` into `buffer`; temporaries below `used` hold left siblings of the ancestors.
  void descend(TreeNode node, int buffer, int used) {
    if (node.leaf()) {
      leaves_.push_back({node.begin, buffer, {}});
      return;
    }
    descend(node.left(), buffer, used);
    if (temporaries_ <= used) temporaries_ = used + 1;
    const int other = static_cast<int>(partials_.size()) + used;
    descend(node.right(), other, used + 1);
    leaves_.back().folds.push_back({buffer, other});
  }

  std::vector<TreeNode> partials_;
  std::vector<Leaf> leaves_;
  int temporaries_ = 0;
};

}  // namespace replicator::detail::collectives
