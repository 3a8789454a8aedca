// SPDX-License-Identifier: Apache-2.0
// The groups of a collective, mapped to ranks: the places of a group, its tree T, its ranks, and the partials of a rank.
// Places number the members of all groups one after the other.
//
//   8 replicas in 2 columns: groups [0, 2, 4, 6] with the places 0..3, [1, 3, 5, 7] with the places 4..7
//   2 ranks: rank 0 holds replicas 0..3, so the places [0, 2) and [4, 6): its partials are T[0, 2) and T[4, 6)
#pragma once

#include <algorithm>
#include <cstddef>
#include <replicator/collectives/replica_blocks.hpp>
#include <replicator/collectives/tree.hpp>
#include <replicator/core/groups.hpp>
#include <vector>

namespace replicator::detail::collectives {

// The root of a group's tree. Nodes are named by places, so the trees of different groups share no node.
inline TreeNode tree_of(const Groups& groups, int group) {
  return {groups.begin(group), groups.begin(group) + groups.size(group)};
}

// The places of a group that lie on a rank; empty where the rank holds no member. Always one span: the replicas of a rank
// and the members of a group both ascend.
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
// The index of a group in groups_on.
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

// The largest number of ranks that one group lies on. A block is cut into that many chunks.
inline int most_ranks(const ReplicaBlocks& blocks, const Groups& groups) {
  std::size_t most = 1;
  for (int group = 0; group < groups.count(); ++group) most = std::max(most, ranks_of(blocks, groups, group).size());
  return static_cast<int>(most);
}

// The partial results that a rank can compute alone: for each of its groups, the maximal subtrees of the group's T.
inline std::vector<TreeNode> partials_on(const ReplicaBlocks& blocks, const Groups& groups, int rank) {
  std::vector<TreeNode> found;
  for (const int group : groups_on(blocks, groups, rank)) {
    const TreeNode here = places_on(blocks, groups, group, rank);
    detail::collect_maximal(tree_of(groups, group), here.begin, here.end, found);
  }
  return found;
}

}  // namespace replicator::detail::collectives
