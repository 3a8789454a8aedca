// SPDX-License-Identifier: Apache-2.0
// The cost of a schedule: bytes moved, steps of latency, and predicted time on a link or a topology.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <replicator/collectives/run/region_layout.hpp>
#include <replicator/collectives/schedule.hpp>
#include <replicator/collectives/topology.hpp>
#include <string>
#include <vector>

namespace replicator::detail::collectives {

// Chunks that a rank receives and sends, before lowering.
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

// The number of chunks loaded from other ranks, summed over all ranks.
inline std::int64_t moved_chunks(const Schedule& schedule) {
  std::int64_t moved = 0;
  for (const Traffic& rank : traffic(schedule)) moved += rank.in;
  return moved;
}

// The bytes that an all-reduce moves, divided by those of a ring (one ring in each group). Returns 1 where every group lies
// on one rank. For owner_computes it is (X + D - 1) / (2 (D - 1)).
inline double bytes_factor(const Schedule& schedule) {
  std::size_t ring = 0;
  for (int group = 0; group < schedule.groups.count(); ++group) ring += 2 * (ranks_of(schedule.blocks, schedule.groups, group).size() - 1);
  if (ring == 0) return 1;
  return static_cast<double>(moved_chunks(schedule)) / static_cast<double>(ring * static_cast<std::size_t>(schedule.chunks));
}

namespace detail {

// The cost of the longest chain of dependent instructions. load(from, to, chunks) is the cost of a load from another rank.
// work(instruction) is its own cost, once all operands are there.
template <class Load, class Work>
double longest_chain(const Schedule& schedule, Load&& load, Work&& work) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks());
  std::vector<std::vector<std::vector<double>>> depth(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    for (const Channel& channel : schedule.programs[r]) depth[r].emplace_back(channel.size(), 0.0);
  double longest = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t c = 0; c < depth[r].size(); ++c)
        for (std::size_t k = 0; k < depth[r][c].size(); ++k) {
          const Instruction& i = schedule.programs[r][c][k];
          const int rank = static_cast<int>(r);
          const auto from = [&](int other) { return other == rank ? 0.0 : load(other, rank, i.dst.count); };
          double step = from(i.left.rank);
          if (i.action == Action::reduce) step = std::max(step, from(i.right.rank));
          if (k > 0) step = std::max(step, depth[r][c][k - 1]);
          for (const Dependency& d : i.after)
            step = std::max(step, from(d.rank) + depth[static_cast<std::size_t>(d.rank)][static_cast<std::size_t>(
                                                     d.channel)][static_cast<std::size_t>(d.instruction)]);
          step += work(i);
          if (step > depth[r][c][k]) {
            depth[r][c][k] = step;
            longest = std::max(longest, step);
            changed = true;
          }
        }
  }
  return longest;
}

}  // namespace detail

// The number of latencies: the length of the longest chain of dependent loads from other ranks.
inline int steps(const Schedule& schedule) {
  return static_cast<int>(detail::longest_chain(
      schedule, [](int, int, int) { return 1.0; }, [](const Instruction&) { return 0.0; }));
}

// Predicts the time of a schedule in microseconds, where every rank has such a link. It is the latencies of the longest
// chain, plus the bytes of the busiest rank. With many pieces that rank stays busy. `block_bytes`: of one block.
inline double predicted_microseconds(const Schedule& schedule, std::int64_t block_bytes, const Link& link) {
  std::int64_t busiest = 0;
  for (const Traffic& rank : traffic(schedule)) busiest = std::max({busiest, rank.in, rank.out});
  const double bytes = static_cast<double>(busiest) * static_cast<double>(block_bytes) / schedule.chunks;
  return steps(schedule) * link.microseconds + bytes / link.bytes_per_microsecond;
}

namespace detail {

// For each dimension the chunks through its busiest link, in the busier direction. The last entry is the chunks that the
// busiest rank reduces and copies inside itself.
inline std::vector<std::int64_t> busiest_chunks(const Schedule& schedule, const Topology& topology) {
  const std::size_t dimensions = topology.dimensions.size();
  const auto ranks = static_cast<std::size_t>(schedule.ranks());
  std::vector<std::vector<Traffic>> links(dimensions, std::vector<Traffic>(ranks));  // [dimension][unit]
  std::vector<std::int64_t> inside(ranks, 0), busiest(dimensions + 1, 0);
  const auto pass = [&](int from, int to, std::int64_t chunks) {
    const int distance = topology.distance(from, to);
    for (int k = 0; k <= distance; ++k) {
      links[static_cast<std::size_t>(k)][static_cast<std::size_t>(from)].out += chunks;
      links[static_cast<std::size_t>(k)][static_cast<std::size_t>(to)].in += chunks;
      from /= topology.dimensions[static_cast<std::size_t>(k)].size;
      to /= topology.dimensions[static_cast<std::size_t>(k)].size;
    }
  };
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Channel& channel : schedule.programs[static_cast<std::size_t>(rank)])
      for (const Instruction& i : channel) {
        pass(i.left.rank, rank, i.left.count);
        if (i.action == Action::reduce) pass(i.right.rank, rank, i.right.count);
        if (i.action == Action::reduce || i.left.rank == rank) inside[static_cast<std::size_t>(rank)] += i.dst.count;
      }
  for (std::size_t k = 0; k < dimensions; ++k)
    for (const Traffic& link : links[k]) busiest[k] = std::max({busiest[k], link.in, link.out});
  busiest[dimensions] = *std::max_element(inside.begin(), inside.end());
  return busiest;
}

}  // namespace detail

// The same on a topology, before lowering. The first piece takes the longer of two times:
// - its longest chain of messages and reductions,
// - the latencies of its longest chain, plus the times of the busiest link of each dimension and of the busiest rank's
//   reductions, one after the other.
//
// Each further piece adds only the busiest of these links and reductions. `simulate` is more exact, but too slow to call
// for every bucket. Throws BuildError where topology and schedule differ in the number of ranks.
inline double predicted_microseconds(const Schedule& schedule, std::int64_t block_bytes, const Topology& topology) {
  if (topology.ranks() != schedule.ranks())
    throw BuildError{"the time of \"" + schedule.name + "\" for " + std::to_string(schedule.ranks()) + " ranks was asked for on a topology of \"" +
                     topology.text() + "\": its dimensions must have all ranks as their product"};
  CollectiveSpec spec;
  spec.dtype = DType::uint8;
  spec.elements = block_bytes;
  const double pieces = piece_count(spec, schedule);
  const double chunk = static_cast<double>(block_bytes) / schedule.chunks / pieces;
  const double reduced = topology.reduced_bytes_per_microsecond;
  const auto rate_of = [&](std::size_t k) { return k < topology.dimensions.size() ? topology.dimensions[k].link.bytes_per_microsecond : reduced; };
  const auto link_of = [&](int from, int to) { return topology.dimensions[static_cast<std::size_t>(topology.distance(from, to))].link; };
  const auto no_work = [](const Instruction&) { return 0.0; };
  double sum = detail::longest_chain(
             schedule, [&](int from, int to, int) { return link_of(from, to).microseconds; }, no_work),
         most = 0;
  const auto busiest = detail::busiest_chunks(schedule, topology);
  for (std::size_t k = 0; k < busiest.size(); ++k) {
    const double time = rate_of(k) > 0 ? static_cast<double>(busiest[k]) * chunk / rate_of(k) : 0;
    sum += time;
    most = std::max(most, time);
  }
  const double chain = detail::longest_chain(
      schedule,
      [&](int from, int to, int chunks) {
        const Link link = link_of(from, to);
        return link.microseconds + chunks * chunk / link.bytes_per_microsecond;
      },
      [&](const Instruction& i) { return i.action == Action::reduce && reduced > 0 ? i.dst.count * chunk / reduced : 0.0; });
  return std::max(sum, chain) + (pieces - 1) * most;
}

}  // namespace replicator::detail::collectives
