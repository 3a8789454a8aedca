// SPDX-License-Identifier: Apache-2.0
// What a schedule costs, and which one to take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <replicator/collectives/all_gather.hpp>
#include <replicator/collectives/broadcast.hpp>
#include <replicator/collectives/direct.hpp>
#include <replicator/collectives/owner_computes.hpp>
#include <replicator/collectives/reduce_scatter.hpp>
#include <replicator/collectives/ring.hpp>
#include <string>
#include <vector>

namespace replicator::collectives {

// How many chunks are loaded from other ranks, over all ranks.
inline std::int64_t moved_chunks(const Schedule& schedule) {
  std::int64_t moved = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
      for (const Instruction& i : channel) {
        if (i.left.rank != rank && i.action != Action::recv) moved += i.left.count;
        if (i.action == Action::reduce && i.right.rank != rank) moved += i.right.count;
      }
  return moved;
}

// Bytes moved by an all-reduce against those of a ring: (X + D - 1) / (2 (D - 1)) for owner_computes. 1 for one rank.
inline double bytes_factor(const Schedule& schedule) {
  if (schedule.ranks() == 1) return 1;
  return static_cast<double>(moved_chunks(schedule)) / (2.0 * (schedule.ranks() - 1) * schedule.chunks);
}

// Latencies: the longest chain of loads from other ranks of which each needs what the one before it led to.
inline int steps(const Schedule& schedule) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks());
  std::vector<std::vector<std::vector<int>>> depth(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    for (const Channel& channel : schedule.programs[r]) depth[r].emplace_back(channel.size(), 0);
  int longest = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t c = 0; c < depth[r].size(); ++c)
        for (std::size_t k = 0; k < depth[r][c].size(); ++k) {
          const Instruction& i = schedule.programs[r][c][k];
          const int rank = static_cast<int>(r);
          const bool loads = i.left.rank != rank || (i.action == Action::reduce && i.right.rank != rank);
          int step = loads ? 1 : 0;
          if (k > 0) step = std::max(step, depth[r][c][k - 1]);
          for (const Dependency& d : i.after)
            step = std::max(step, (d.rank != rank) + depth[static_cast<std::size_t>(d.rank)][static_cast<std::size_t>(
                                                         d.channel)][static_cast<std::size_t>(d.instruction)]);
          if (step > depth[r][c][k]) {
            depth[r][c][k] = step;
            longest = std::max(longest, depth[r][c][k]);
            changed = true;
          }
        }
  }
  return longest;
}

struct Choice {
  Schedule schedule;
  std::string reason;  // one line, for explain()
};

// Up to here a latency costs more than moving every partial to every rank.
inline constexpr std::int64_t direct_limit_bytes = 16 * 1024;

// The all-reduce of `bytes` for D ranks and R replicas. Throws BuildError unless 1 <= ranks <= replicas.
inline Choice choose_all_reduce(std::int64_t bytes, int ranks, int replicas, bool any_order) {
  const ReplicaBlocks blocks{replicas, ranks};
  const std::string size = std::to_string(bytes) + " B on " + std::to_string(ranks) + " ranks";
  if (ranks == 1) return {owner_computes(blocks), "local: one rank holds all replicas"};
  if (bytes <= direct_limit_bytes)
    return {direct(blocks), "direct: " + size + ", at most " + std::to_string(direct_limit_bytes) +
                                " B: one latency, every rank evaluates the tree"};
  Schedule schedule = owner_computes(blocks);
  const double factor = bytes_factor(schedule);
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.2f", factor);
  // The ring's latency grows with the ranks: it has to save bytes.
  if (any_order && factor > 1)
    return {ring(blocks), "ring: " + size + ", any_order was asked for and owner_computes would move " + ratio +
                              " times as many bytes"};
  return {std::move(schedule),
          "owner_computes: " + size + ", " + ratio + " times the bytes of a ring, same bits on every placement"};
}

// The schedule for any kind. `block_bytes`: what one replica contributes. `root`: broadcast only, a replica.
inline Choice choose(Kind kind, std::int64_t block_bytes, const ReplicaBlocks& blocks, int root = 0,
                     bool any_order = false) {
  switch (kind) {
    case Kind::all_reduce:
      return choose_all_reduce(block_bytes, blocks.ranks(), blocks.replicas(), any_order);
    case Kind::all_gather:
      return {all_gather(blocks), "all_gather: one step, the least bytes possible"};
    case Kind::reduce_scatter:
      return {reduce_scatter(blocks), "reduce_scatter: owner computes, same bits on every placement"};
    case Kind::broadcast:
      break;
  }
  const bool flat = block_bytes <= direct_limit_bytes;
  return {broadcast(blocks, root, flat),
          flat ? "flat_broadcast: few bytes, one latency" : "broadcast: scatter, then all-gather"};
}

}  // namespace replicator::collectives
