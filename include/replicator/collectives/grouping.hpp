// SPDX-License-Identifier: Apache-2.0
// Where the members of groups lie, and the tree T of each group over its places.
//
//   8 replicas in 2 columns: groups [0, 2, 4, 6], [1, 3, 5, 7]; places 0..3 are the first's, 4..7 the second's
//   on 2 ranks: rank 0 holds the replicas 0..3, so the places [0, 2) and [4, 6): the partials T[0, 2) and T[4, 6)
#pragma once

#include <algorithm>
#include <cstddef>
#include <replicator/collectives/replica_blocks.hpp>
#include <replicator/collectives/tree.hpp>
#include <replicator/core/groups.hpp>
#include <vector>

namespace replicator::detail::collectives {

// The whole of a group's tree. A subtree depends on its own borders only, so the trees of all groups have nodes of their own.
inline TreeNode tree_of(const Groups& groups, int group) {
  return {groups.begin(group), groups.begin(group) + groups.size(group)};
}

// The places of a group that lie on a rank; empty where it has no members there. One span, since both replicas of a rank
// and members of a group ascend.
inline TreeNode places_on(const ReplicaBlocks& blocks, const Groups& groups, int group, int rank) {
  const auto& members = groups.members(group);
  const auto from = [&](int replica) {
    return groups.begin(group) + static_cast<int>(std::lower_bound(members.begin(), members.end(), replica) - members.begin());
  };
  return {from(blocks.begin(rank)), from(blocks.end(rank))};
}

// The groups with members on a rank, ascending.
inline std::vector<int> groups_on(const ReplicaBlocks& blocks, const Groups& groups, int rank) {
  std::vector<bool> present(static_cast<std::size_t>(groups.count()), false);
  for (int replica = blocks.begin(rank); replica < blocks.end(rank); ++replica)
    present[static_cast<std::size_t>(groups.group_of(replica))] = true;
  std::vector<int> result;
  for (int group = 0; group < groups.count(); ++group)
    if (present[static_cast<std::size_t>(group)]) result.push_back(group);
  return result;
}
// Which of those a group is.
inline int index_on(const ReplicaBlocks& blocks, const Groups& groups, int group, int rank) {
  const auto present = groups_on(blocks, groups, rank);
  return static_cast<int>(std::lower_bound(present.begin(), present.end(), group) - present.begin());
}
// The ranks with members of a group, ascending.
inline std::vector<int> ranks_of(const ReplicaBlocks& blocks, const Groups& groups, int group) {
  std::vector<int> ranks;
  for (const int replica : groups.members(group)) {
    const int rank = blocks.rank_of(replica);
    if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
  }
  return ranks;
}

// The most ranks that one group lies on: into how many chunks a block is cut.
inline int most_ranks(const ReplicaBlocks& blocks, const Groups& groups) {
  std::size_t most = 1;
  for (int group = 0; group < groups.count(); ++group) most = std::max(most, ranks_of(blocks, groups, group).size());
  return static_cast<int>(most);
}

// The partial results that a rank can compute alone, group by group: maximal subtrees of each group's T.
inline std::vector<TreeNode> partials_on(const ReplicaBlocks& blocks, const Groups& groups, int rank) {
  std::vector<TreeNode> found;
  for (const int group : groups_on(blocks, groups, rank)) {
    const TreeNode here = places_on(blocks, groups, group, rank);
    detail::collect_maximal(tree_of(groups, group), here.begin, here.end, found);
  }
  return found;
}

}  // namespace replicator::detail::collectives
