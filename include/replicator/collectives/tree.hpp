// SPDX-License-Identifier: Apache-2.0
// The canonical tree T over the replicas [0, R). Every deterministic reduction follows it, wherever it is computed:
//
//   T[lo, hi) = leaf lo                                   if hi - lo == 1
//             = combine(T[lo, mid), T[mid, hi))           otherwise, mid = lo + ceil((hi - lo) / 2)
//
//   R = 5:        [0,5)
//               /       \        .
//            [0,3)     [3,5)
//            /   \      /  \     .
//         [0,2)   2    3    4
//          / \                   .
//         0   1
#pragma once

#include <cstddef>
#include <replicator/core/error.hpp>
#include <string>
#include <vector>

namespace replicator::collectives {

// The node T[begin, end); a subtree depends on its own borders only.
struct TreeNode {
  int begin = 0;
  int end = 0;

  bool leaf() const { return end - begin == 1; }
  // Where the left child ends. Only for nodes that are no leaf.
  int middle() const { return begin + (end - begin + 1) / 2; }
  TreeNode left() const { return {begin, middle()}; }
  TreeNode right() const { return {middle(), end}; }
  // "[2, 5)"
  std::string text() const { return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")"; }
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

namespace detail {
inline void collect_maximal(TreeNode node, int begin, int end, std::vector<TreeNode>& found) {
  if (node.end <= begin || end <= node.begin) return;
  if (begin <= node.begin && node.end <= end) {
    found.push_back(node);
  } else if (!node.leaf()) {
    collect_maximal(node.left(), begin, end, found);
    collect_maximal(node.right(), begin, end, found);
  }
}
}  // namespace detail

// The maximal nodes of T over [0, replicas) that lie wholly inside [begin, end), ascending: the partial results that a
// rank with these replicas can compute alone. At most 2 ceil(log2 replicas) of them.
// Throws BuildError for a block that is empty or outside [0, replicas).
inline std::vector<TreeNode> maximal_subtrees(int replicas, int begin, int end) {
  if (begin < 0 || begin >= end || end > replicas)
    throw BuildError{"the replicas " + TreeNode{begin, end}.text() + " are no block of " + std::to_string(replicas)};
  std::vector<TreeNode> found;
  detail::collect_maximal({0, replicas}, begin, end, found);
  return found;
}

// How a rank folds the leaves of its block into its partials while they arrive in ascending order. Pure data, made at
// plan time: leaf i is written to the buffer `leaves[i].buffer`, then the folds follow at once, each
// `into = combine(into, from)`; afterwards `from` is free. Partial p ends in buffer p (the collective's input(p));
// the buffers behind the partials are temporary. Beside finished partials at most ceil(log2 m) + 1 are alive.
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

  const std::vector<TreeNode>& partials() const { return partials_; }
  const std::vector<Leaf>& leaves() const { return leaves_; }
  // Buffers beyond the partials.
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

}  // namespace replicator::collectives
