// SPDX-License-Identifier: Apache-2.0
// Measures latency and bandwidth between pairs of ranks, through the same communicators that a job uses.
//
//   4 ranks: every rank meets every other      round 0: [0 3] [1 2]      round 1: [0 2] [1 3]      round 2: [0 1] [2 3]
//
// The pairs of a round swap blocks at the same time, by an all_gather inside each pair. A small block measures the latency,
// a large one the bandwidth. So n ranks need n - 1 rounds, whatever their links are.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <replicator/collectives/algorithms/all_gather.hpp>
#include <replicator/collectives/combine_elements.hpp>
#include <replicator/collectives/connect/measure_options.hpp>
#include <replicator/collectives/reduction.hpp>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/topology.hpp>
#include <replicator/core/quantile.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

// Pairs the ranks in rounds, so that each rank meets every other one once (the circle method). Throws BuildError for an odd
// number of ranks.
inline std::vector<Groups> tournament(int ranks) {
  if (ranks < 2 || ranks % 2 != 0) throw BuildError{"a tournament of " + std::to_string(ranks) + " ranks was asked for: an even number can be paired"};
  std::vector<Groups> rounds;
  for (int round = 0; round + 1 < ranks; ++round) {
    const auto seat = [&](int i) { return i == 0 ? 0 : 1 + (i - 1 + round) % (ranks - 1); };
    std::vector<std::vector<int>> pairs;
    for (int i = 0; i < ranks / 2; ++i) pairs.push_back({std::min(seat(i), seat(ranks - 1 - i)), std::max(seat(i), seat(ranks - 1 - i))});
    rounds.emplace_back(std::move(pairs));
  }
  return rounds;
}

namespace detail {

// A timed swap of `bytes` inside each pair.
class Swap {
 public:
  Swap(Communicator& communicator, const Groups& pairs, std::int64_t bytes, std::uint32_t id, std::chrono::milliseconds deadline)
      : deadline_{deadline}, mine_{communicator.rank() == pairs.members(pairs.group_of(communicator.rank()))[0] ? 0u : 1u}, bytes_{static_cast<std::size_t>(bytes)} {
    const int partner = pairs.members(pairs.group_of(communicator.rank()))[1 - mine_];
    const CollectiveSpec spec{Kind::all_gather, DType::uint8, Reduction::sum, bytes, 0, false,
                              "the measurement of links, with rank " + std::to_string(partner), id, pairs};
    collective_ = communicator.prepare(spec, all_gather(communicator.blocks(), pairs));
  }
  // Runs one swap and returns its microseconds. The partner is sent `word`; the partner's word is then in theirs().
  double run(double word = 0) {
    const auto began = transport::Clock::now();
    std::memcpy(collective_->input(0), &word, sizeof word);
    collective_->start();
    collective_->wait(began + deadline_);
    const std::chrono::duration<double, std::micro> took = transport::Clock::now() - began;
    std::memcpy(&theirs_, collective_->output() + (1 - mine_) * bytes_, sizeof theirs_);
    return took.count();
  }
  double theirs() const { return theirs_; }

 private:
  std::chrono::milliseconds deadline_;
  std::size_t mine_;
  std::size_t bytes_;
  double theirs_ = 0;
  std::unique_ptr<Collective> collective_;
};

inline std::vector<double> times_of(Swap& swap, int runs) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(swap.run());
  return times;
}

// The lower quartile of 16 swaps of few bytes. The first swaps only make connections, and later ones may wait for a busy
// processor. Mailboxes wait for all ranks, not only for the partner, so every rank must run equally many swaps.
inline double latency_of(Swap& swap) {
  times_of(swap, 4);
  return quantile(times_of(swap, 16), 0.25);
}

// The median of as many runs as fit into `microseconds`, from 3 to 15. Both partners agree on the number.
inline double median_within(Swap& swap, double microseconds) {
  const double first = swap.run();
  swap.run(first);
  return median(times_of(swap, std::clamp(static_cast<int>(microseconds / std::max(first, swap.theirs())), 3, 15)));
}

}  // namespace detail

// Bytes of float32 sums that a core makes per microsecond, in blocks of 1 MiB: the median of five. Copies count the same.
inline double measure_reduction() {
  constexpr std::size_t bytes = 1 << 20;
  const std::vector<float> left(bytes / sizeof(float), 1), right(left);
  std::vector<float> sum(left.size());
  std::vector<double> times;
  for (int i = 0; i < 6; ++i) {
    const auto began = transport::Clock::now();
    combine(DType::float32, Reduction::sum, reinterpret_cast<std::byte*>(sum.data()), reinterpret_cast<const std::byte*>(left.data()),
            reinterpret_cast<const std::byte*>(right.data()), static_cast<std::int64_t>(sum.size()));
    const std::chrono::duration<double, std::micro> took = transport::Clock::now() - began;
    if (i > 0) times.push_back(std::max(took.count(), 1.0));
  }
  return static_cast<double>(bytes) / median(std::move(times));
}

// Collective. The communicator has one replica per rank. Every rank passes the same options and the same rounds. Each group
// of a round is a pair. Returns for each round the link between this rank and its partner.
// - `reduced`: the result of measure_reduction. The time to copy the own block is subtracted from the time of the link.
// - `counted`: ranks from here on only make the number even. Pairs with them swap few bytes, and use nobody else's link.
//
// Throws CommunicationError that names the rank that did not come before the deadline.
inline std::vector<Link> measure_links(Communicator& communicator, std::span<const Groups> rounds, double reduced, int counted,
                                       const MeasureOptions& options = {}) {
  constexpr std::int64_t small = 64;
  const std::int64_t large = rounds.size() <= 16 ? 1 << 20 : 1 << 18;
  const double each = static_cast<double>(options.budget.count()) / static_cast<double>(rounds.size());
  // All are prepared first and live until the end: a partner may still be reading.
  std::vector<std::unique_ptr<detail::Swap>> few, many;
  for (const Groups& pairs : rounds) {
    const auto id = static_cast<std::uint32_t>(2 * few.size());
    few.push_back(std::make_unique<detail::Swap>(communicator, pairs, small, id, options.deadline));
    many.push_back(std::make_unique<detail::Swap>(communicator, pairs, large, id + 1, options.deadline));
  }
  std::vector<Link> links;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    const double latency = detail::latency_of(*few[round]);
    const auto& pair = rounds[round].members(rounds[round].group_of(communicator.rank()));
    if (pair[1] >= counted) {
      links.push_back({latency, Link{}.bytes_per_microsecond});
      continue;
    }
    const double time = detail::median_within(*many[round], each);
    const double moving = std::max(time - latency - static_cast<double>(large) / reduced, time / 2);
    links.push_back({latency, static_cast<double>(large) / moving});
  }
  return links;
}

}  // namespace replicator::detail::collectives
