// SPDX-License-Identifier: Apache-2.0
// The code of choice.hpp: chooses by cost, from bytes, ranks and latency, or from times predicted on a topology.
#pragma once

#include <cstdint>
#include <cstdio>
#include <replicator/collectives/algorithms/all_gather.hpp>
#include <replicator/collectives/algorithms/all_reduces.hpp>
#include <replicator/collectives/algorithms/all_to_all.hpp>
#include <replicator/collectives/algorithms/broadcast.hpp>
#include <replicator/collectives/algorithms/reduce_scatter.hpp>
#include <replicator/collectives/choose/choice.hpp>
#include <replicator/collectives/choose/predicted_time.hpp>
#include <replicator/transport/transport.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

// Broadcasts of up to this size take one step, in which every rank reads the root.
inline constexpr std::int64_t flat_broadcast_limit_bytes = 16 * 1024;

// The value of a latency: the bytes that a rank could read and add in that time. docs/algorithms.md has the measurements.
constexpr double worth_bytes(transport::Latency latency) {
  switch (latency) {
    case transport::Latency::memory: return 800;
    case transport::Latency::crowded_memory: return 20 * 1024;
    case transport::Latency::queues: return 256 * 1024;  // assumed, of GPUs: 5 us at 50 GB/s
    case transport::Latency::messages: break;
  }
  return 32 * 1024;
}

// The largest size for which `direct` is taken. `direct` saves one latency compared with owner_computes. But each of the D ranks does all D - 1 additions of n
// bytes, instead of one D-th. That is n (D - 1)^2 / D bytes more.
constexpr std::int64_t direct_limit_bytes(int ranks, transport::Latency latency) {
  return static_cast<std::int64_t>(worth_bytes(latency) * ranks / (static_cast<double>(ranks - 1) * (ranks - 1)));
}

namespace detail {

// "direct: 256 B on 2 ranks, at most 1600 B between cores: one latency, every rank evaluates the tree"
inline std::string why_direct(const std::string& size, std::int64_t limit, transport::Latency latency) {
  const std::string where = latency == transport::Latency::memory           ? " B between cores"
                            : latency == transport::Latency::crowded_memory ? " B between more ranks than cores"
                            : latency == transport::Latency::queues         ? " B between devices"
                                                                            : " B by messages";
  return "direct: " + size + ", at most " + std::to_string(limit) + where + ": one latency, every rank evaluates the tree";
}

}  // namespace detail

// The all-reduce of `bytes` over D ranks and R replicas. Throws BuildError unless 1 <= ranks <= replicas.
inline Choice choose_all_reduce(std::int64_t bytes, int ranks, int replicas, bool any_order, transport::Latency latency = transport::Latency::messages) {
  const ReplicaBlocks blocks{replicas, ranks};
  const std::string size = std::to_string(bytes) + " B on " + std::to_string(ranks) + " ranks";
  if (ranks == 1) return {owner_computes(blocks), "local: one rank holds all replicas"};
  const std::int64_t limit = direct_limit_bytes(ranks, latency);
  if (bytes <= limit) return {direct(blocks), detail::why_direct(size, limit, latency)};
  Schedule schedule = owner_computes(blocks);
  const double factor = bytes_factor(schedule);
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.2f", factor);
  // The ring's latency grows with the ranks, so it is taken only where it saves bytes.
  if (any_order && factor > 1)
    return {ring(blocks), "ring: " + size + ", any_order was asked for and owner_computes would move " + ratio +
                              " times as many bytes"};
  return {std::move(schedule),
          "owner_computes: " + size + ", " + ratio + " times the bytes of a ring, same bits on every placement"};
}

// The all-reduce that was asked for by name. Throws BuildError for an unknown name or wrong dimensions. Also throws where
// the schedule would change bits and any_order is not allowed.
inline Choice choose_by_name(const AllReducePreference& wanted, const ReplicaBlocks& blocks, bool any_order) {
  Schedule schedule = all_reduce_by_name(wanted, blocks);
  if (schedule.any_order && !any_order)
    throw BuildError{"--schedule " + wanted.text() + " adds " + std::to_string(blocks.replicas()) + " replicas on " +
                     std::to_string(blocks.ranks()) +
                     " devices in an order of its own, which would change bits: choose auto, owner_computes, direct, "
                     "binary_tree or naive, or allow it with all_reduce(x, reduction, {.any_order = true})"};
  return {std::move(schedule), wanted.text() + ": asked for by --schedule"};
}

namespace detail {

// "12.3 us", "4.56 ms"
inline std::string time_text(double microseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", microseconds < 1000 ? microseconds : microseconds / 1000, microseconds < 1000 ? "us" : "ms");
  return text;
}

// The sizes of the topology's dimensions, as `hierarchical` takes them.
inline std::vector<int> sizes_of(const Topology& topology) {
  std::vector<int> sizes;
  for (const auto& dimension : topology.dimensions) sizes.push_back(dimension.size);
  return sizes;
}

}  // namespace detail

// The all-reduce with the shortest predicted time on the topology; ties go to the first in all_reduce_names. Schedules that
// add in their own order are considered only with any_order. Equal arguments give equal choices, so processes with equal
// figures agree. Throws BuildError where topology and blocks differ in the number of ranks.
inline Choice choose_by_prediction(std::int64_t bytes, const ReplicaBlocks& blocks, bool any_order, const Topology& topology) {
  if (blocks.ranks() == 1) return {owner_computes(blocks), "local: one rank holds all replicas"};
  Choice best;
  std::vector<std::pair<std::string, double>> times;
  std::string refused;
  for (const std::string_view name : all_reduce_names) {
    if (name == "hierarchical" && topology.dimensions.size() < 2) continue;
    if (name == "ring" && !any_order) continue;
    Schedule schedule = all_reduce_by_name({std::string{name}, detail::sizes_of(topology)}, blocks);
    const double time = predicted_microseconds(schedule, bytes, topology);
    if (schedule.any_order && !any_order) {
      refused += "; " + std::string{name} + " " + detail::time_text(time) + " in an order of its own";
      continue;
    }
    times.push_back({std::string{name}, time});
    if (times.size() == 1 || time < best.microseconds) best = {std::move(schedule), {}, time};
  }
  std::string others;
  for (const auto& [name, time] : times)
    if (name != best.schedule.name) others += (others.empty() ? "" : ", ") + name + " " + detail::time_text(time);
  best.reason = best.schedule.name + ": " + std::to_string(bytes) + " B on " + topology.text() + " ranks, the fastest by prediction; " +
                others + refused;
  return best;
}

// An all-reduce inside each group. --schedule applies only to all-reduces of all replicas. Throws BuildError where the
// groups are no partition of the replicas.
inline Choice choose_grouped_all_reduce(std::int64_t bytes, const ReplicaBlocks& blocks, const Groups& in, transport::Latency latency) {
  const Groups groups = detail::require_groups(Kind::all_reduce, blocks, in);
  const int most = most_ranks(blocks, groups);
  const std::string size = std::to_string(bytes) + " B in " + std::to_string(groups.count()) + " groups on at most " + std::to_string(most) + " ranks each";
  if (most == 1) return {owner_computes(blocks, groups), "local: every group lies on one rank"};
  const std::int64_t limit = direct_limit_bytes(most, latency);
  if (bytes <= limit) return {direct(blocks, groups), detail::why_direct(size, limit, latency)};
  return {owner_computes(blocks, groups), "owner_computes: " + size + ", same bits on every placement"};
}

namespace detail {

inline Choice choose_kind(Kind kind, std::int64_t block_bytes, const ReplicaBlocks& blocks, int root, bool any_order,
                          const AllReducePreference& wanted, const Groups& groups, transport::Latency latency) {
  switch (kind) {
    case Kind::all_reduce:
      if (!groups.everybody()) return choose_grouped_all_reduce(block_bytes, blocks, groups, latency);
      if (wanted.name != "auto" && blocks.ranks() > 1) return choose_by_name(wanted, blocks, any_order);
      if (!wanted.topology.dimensions.empty()) return choose_by_prediction(block_bytes, blocks, any_order, wanted.topology);
      return choose_all_reduce(block_bytes, blocks.ranks(), blocks.replicas(), any_order, latency);
    case Kind::all_gather:
      return {all_gather(blocks, groups), "all_gather: one step, the least bytes possible"};
    case Kind::reduce_scatter:
      return {reduce_scatter(blocks, groups), "reduce_scatter: owner computes, same bits on every placement"};
    case Kind::all_to_all:
      return {all_to_all(blocks, groups), "all_to_all: one step, every part moves once"};
    case Kind::broadcast:
      break;
  }
  const bool flat = block_bytes <= flat_broadcast_limit_bytes;
  return {broadcast(blocks, root, flat, groups),
          flat ? "flat_broadcast: few bytes, one latency" : "broadcast: scatter, then all-gather"};
}

}  // namespace detail

template <class>
Choice choose(Kind kind, std::int64_t block_bytes, const ReplicaBlocks& blocks, int root, bool any_order, const AllReducePreference& wanted,
              const Groups& groups, transport::Latency latency) {
  Choice choice = detail::choose_kind(kind, block_bytes, blocks, root, any_order, wanted, groups, latency);
  if (choice.microseconds == 0 && blocks.ranks() > 1 && !wanted.topology.dimensions.empty())
    choice.microseconds = predicted_microseconds(choice.schedule, block_bytes, wanted.topology);
  return choice;
}

}  // namespace replicator::detail::collectives
