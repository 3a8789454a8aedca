// SPDX-License-Identifier: Apache-2.0
// The part of T that spans ranks, and the assignment of its nodes to the ranks that compute them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <replicator/collectives/build.hpp>
#include <replicator/collectives/schedule.hpp>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

// T above the partials of the ranks. Children come before parents; the root is last.
class CrossingTree {
 public:
  struct Vertex {
    TreeNode node;
    int left = -1;  // index of a vertex; -1 where this is a partial
    int right = -1;
    int rank = -1;   // of a partial: its rank
    int index = -1;  // of a partial: its input there
    bool partial() const { return left < 0; }
  };

  explicit CrossingTree(const ReplicaBlocks& blocks) : CrossingTree{blocks, Groups{}.over(blocks.replicas()), 0} {}
  // For one group; `groups` lists all replicas.
  CrossingTree(const ReplicaBlocks& blocks, const Groups& groups, int group)
      : blocks_{blocks}, groups_{groups}, ranks_(static_cast<std::size_t>(blocks.ranks())) {
    for (int rank = 0; rank < blocks.ranks(); ++rank) inputs_.push_back(partials_on(blocks, groups, rank));
    add(tree_of(groups, group));
    fill_costs();
  }
  const std::vector<Vertex>& vertices() const { return vertices_; }

  // The owner of every vertex, with the fewest edges between ranks and the root on `root_rank`. Ties go to the owner of the
  // parent, then to the lowest rank.
  std::vector<int> owners(int root_rank) const {
    const std::size_t ranks = ranks_;
    std::vector<int> owner(vertices_.size(), root_rank);
    for (std::size_t v = vertices_.size(); v-- > 0;) {
      const Vertex& vertex = vertices_[v];
      if (vertex.partial()) continue;
      for (const int child : {vertex.left, vertex.right}) {
        const int* cost = &costs_[static_cast<std::size_t>(child) * ranks];
        int best = owner[v];
        for (int r = 0; r < static_cast<int>(ranks); ++r)
          if (cost[r] + (r != owner[v]) < cost[best] + (best != owner[v])) best = r;
        owner[static_cast<std::size_t>(child)] = best;
      }
    }
    return owner;
  }

 private:
  static constexpr int nowhere = std::numeric_limits<int>::max() / 4;

  int add(TreeNode node) {
    const int rank = blocks_.rank_of(groups_.replica_at(node.begin));
    const auto& partials = inputs_[static_cast<std::size_t>(rank)];
    const auto found = std::find(partials.begin(), partials.end(), node);
    Vertex vertex{node};
    if (found != partials.end()) {
      vertex.rank = rank;
      vertex.index = static_cast<int>(found - partials.begin());
    } else {
      vertex.left = add(node.left());
      vertex.right = add(node.right());
    }
    vertices_.push_back(vertex);
    return static_cast<int>(vertices_.size()) - 1;
  }

  // costs_[v * ranks + r]: the fewest crossing edges below v when r owns v.
  void fill_costs() {
    const std::size_t ranks = ranks_;
    costs_.assign(vertices_.size() * ranks, 0);
    for (std::size_t v = 0; v < vertices_.size(); ++v) {
      const Vertex& vertex = vertices_[v];
      int* cost = &costs_[v * ranks];
      if (vertex.partial()) {
        for (std::size_t r = 0; r < ranks; ++r) cost[r] = static_cast<int>(r) == vertex.rank ? 0 : nowhere;
        continue;
      }
      for (const int child : {vertex.left, vertex.right}) {
        const int* below = &costs_[static_cast<std::size_t>(child) * ranks];
        int cheapest = nowhere;
        for (std::size_t r = 0; r < ranks; ++r) cheapest = below[r] < cheapest ? below[r] : cheapest;
        for (std::size_t r = 0; r < ranks; ++r) cost[r] += below[r] < cheapest + 1 ? below[r] : cheapest + 1;
      }
    }
  }

  ReplicaBlocks blocks_;
  Groups groups_;
  std::size_t ranks_;
  std::vector<std::vector<TreeNode>> inputs_;  // [rank]
  std::vector<Vertex> vertices_;
  std::vector<int> costs_;
};

namespace detail {

// Appends T for one chunk: from `chunk` of the inputs to the root in `result`. Every rank's part is in its channel
// `channel`. owner[v] computes vertex v; result.rank owns the root.
inline Placed append_tree(Schedule& schedule, const CrossingTree& tree, const std::vector<int>& owner, int chunk,
                          int channel, const Operand& result) {
  const auto& vertices = tree.vertices();
  std::vector<Placed> placed;
  for (std::size_t v = 0; v < vertices.size(); ++v) {
    const CrossingTree::Vertex& vertex = vertices[v];
    if (vertex.partial()) {
      placed.push_back({{Buffer::input, vertex.rank, vertex.index, chunk, 1}, false, {}});
      continue;
    }
    const bool root = v + 1 == vertices.size();
    const int rank = owner[v];
    const Placed& left = placed[static_cast<std::size_t>(vertex.left)];
    const Placed& right = placed[static_cast<std::size_t>(vertex.right)];
    const Operand dst = root ? result : scratch_slots(schedule, rank, chunk, 1);
    Instruction reduce{Action::reduce, dst, left.where, right.where, -1, {}, root};
    placed.push_back(append(schedule, rank, channel, std::move(reduce), {left, right}));
  }
  if (!vertices.back().partial()) return placed.back();
  // The whole tree lies on one rank.
  return append(schedule, result.rank, channel, {Action::copy, result, placed.back().where, {}, -1, {}, true}, {});
}

}  // namespace detail

}  // namespace replicator::detail::collectives
