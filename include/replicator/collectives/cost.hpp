// SPDX-License-Identifier: Apache-2.0
// What a schedule costs, and which one to take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <replicator/collectives/all_gather.hpp>
#include <replicator/collectives/all_reduces.hpp>
#include <replicator/collectives/all_to_all.hpp>
#include <replicator/collectives/broadcast.hpp>
#include <replicator/collectives/reduce_scatter.hpp>
#include <replicator/collectives/topology.hpp>
#include <string>
#include <vector>

namespace replicator::collectives {

// How many chunks come to a rank and leave it, before lowering.
struct Traffic {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// [rank]
inline std::vector<Traffic> traffic(const Schedule& schedule) {
  std::vector<Traffic> moved(static_cast<std::size_t>(schedule.ranks()));
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
      for (const Instruction& i : channel)
        for (const Operand* o : {&i.left, &i.right}) {
          if (o->rank == rank || (o == &i.left ? i.action == Action::recv : i.action != Action::reduce)) continue;
          moved[static_cast<std::size_t>(rank)].in += o->count;
          moved[static_cast<std::size_t>(o->rank)].out += o->count;
        }
  return moved;
}

// How many chunks are loaded from other ranks, over all ranks.
inline std::int64_t moved_chunks(const Schedule& schedule) {
  std::int64_t moved = 0;
  for (const Traffic& rank : traffic(schedule)) moved += rank.in;
  return moved;
}

// Bytes moved by an all-reduce against those of a ring (one in each group): (X + D - 1) / (2 (D - 1)) for owner_computes.
// 1 where no group is on more than one rank.
inline double bytes_factor(const Schedule& schedule) {
  std::size_t ring = 0;
  for (int group = 0; group < schedule.groups.count(); ++group) ring += 2 * (ranks_of(schedule.blocks, schedule.groups, group).size() - 1);
  if (ring == 0) return 1;
  return static_cast<double>(moved_chunks(schedule)) / static_cast<double>(ring * static_cast<std::size_t>(schedule.chunks));
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

// The time of a schedule in microseconds where every rank has one such link: the latencies of its longest chain, and
// the bytes of the busiest rank, which many pieces keep busy. `block_bytes`: of one block.
inline double predicted_microseconds(const Schedule& schedule, std::int64_t block_bytes, const Link& link) {
  std::int64_t busiest = 0;
  for (const Traffic& rank : traffic(schedule)) busiest = std::max({busiest, rank.in, rank.out});
  const double bytes = static_cast<double>(busiest) * static_cast<double>(block_bytes) / schedule.chunks;
  return steps(schedule) * link.microseconds + bytes / link.bytes_per_microsecond;
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

// The all-reduce that was asked for by name. Throws BuildError where it would change bits and any_order is not allowed.
inline Choice choose_by_name(const AllReducePreference& wanted, const ReplicaBlocks& blocks, bool any_order) {
  Schedule schedule = all_reduce_by_name(wanted, blocks);
  if (schedule.any_order && !any_order)
    throw BuildError{"--schedule " + wanted.text() + " adds " + std::to_string(blocks.replicas()) + " replicas on " +
                     std::to_string(blocks.ranks()) +
                     " devices in an order of its own, which would change bits: choose auto, owner_computes, direct, "
                     "binary_tree or naive, or allow it with all_reduce(x, reduction, {.any_order = true})"};
  return {std::move(schedule), wanted.text() + ": asked for by --schedule"};
}

// An all-reduce inside each group; --schedule is for those of all replicas.
inline Choice choose_grouped_all_reduce(std::int64_t bytes, const ReplicaBlocks& blocks, const Groups& in) {
  const Groups groups = detail::require_groups(Kind::all_reduce, blocks, in);
  const int most = most_ranks(blocks, groups);
  const std::string size = std::to_string(bytes) + " B in " + std::to_string(groups.count()) + " groups on at most " + std::to_string(most) + " ranks each";
  if (most == 1) return {owner_computes(blocks, groups), "local: every group lies on one rank"};
  if (bytes <= direct_limit_bytes) return {direct(blocks, groups), "direct: " + size + ": one latency"};
  return {owner_computes(blocks, groups), "owner_computes: " + size + ", same bits on every placement"};
}

// The schedule for any kind. `block_bytes`: of a block. `root`: broadcast only, a position in each group.
// `wanted`: of all_reduce of all replicas only.
inline Choice choose(Kind kind, std::int64_t block_bytes, const ReplicaBlocks& blocks, int root = 0,
                     bool any_order = false, const AllReducePreference& wanted = {}, const Groups& groups = {}) {
  switch (kind) {
    case Kind::all_reduce:
      if (!groups.everybody()) return choose_grouped_all_reduce(block_bytes, blocks, groups);
      if (wanted.name != "auto" && blocks.ranks() > 1) return choose_by_name(wanted, blocks, any_order);
      return choose_all_reduce(block_bytes, blocks.ranks(), blocks.replicas(), any_order);
    case Kind::all_gather:
      return {all_gather(blocks, groups), "all_gather: one step, the least bytes possible"};
    case Kind::reduce_scatter:
      return {reduce_scatter(blocks, groups), "reduce_scatter: owner computes, same bits on every placement"};
    case Kind::all_to_all:
      return {all_to_all(blocks, groups), "all_to_all: one step, every part moves once"};
    case Kind::broadcast:
      break;
  }
  const bool flat = block_bytes <= direct_limit_bytes;
  return {broadcast(blocks, root, flat, groups),
          flat ? "flat_broadcast: few bytes, one latency" : "broadcast: scatter, then all-gather"};
}

}  // namespace replicator::collectives
