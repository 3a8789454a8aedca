// SPDX-License-Identifier: Apache-2.0
// The canonical tree T over the replicas [0, R). Every deterministic reduction follows it, whichever rank computes it:
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

namespace replicator::detail::collectives {

// The node T[begin, end). A subtree depends on its own borders only.
struct TreeNode {
  int begin = 0;
  int end = 0;

  bool leaf() const { return end - begin == 1; }
  // The end of the left child. Only for nodes that are not leaves.
  int middle() const { return begin + (end - begin + 1) / 2; }
  TreeNode left() const { return {begin, middle()}; }
  TreeNode right() const { return {middle(), end}; }
  // "[2, 5)"
  template <class = void>
  std::string text() const {
    return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
  }
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

namespace detail {
// Appends the maximal nodes below `node` that lie inside [begin, end).
template <class = void>
void collect_maximal(TreeNode node, int begin, int end, std::vector<TreeNode>& found) {
  if (node.end <= begin || end <= node.begin) return;
  if (begin <= node.begin && node.end <= end) {
    found.push_back(node);
  } else if (!node.leaf()) {
    collect_maximal(node.left(), begin, end, found);
    collect_maximal(node.right(), begin, end, found);
  }
}
}  // namespace detail

// The maximal nodes of T over [0, replicas) that lie wholly inside [begin, end), ascending. They are the partial results
// that a rank with these replicas can compute alone; there are at most 2 ceil(log2 replicas). Throws BuildError for a block
// that is empty or outside [0, replicas).
template <class = void>
std::vector<TreeNode> maximal_subtrees(int replicas, int begin, int end) {
  if (begin < 0 || begin >= end || end > replicas)
    throw BuildError{"the replicas " + TreeNode{begin, end}.text() + " are no block of " + std::to_string(replicas)};
  std::vector<TreeNode> found;
  detail::collect_maximal({0, replicas}, begin, end, found);
  return found;
}

}  // namespace replicator::detail::collectives
