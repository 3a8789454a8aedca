// SPDX-License-Identifier: Apache-2.0
// The state of a topology's links in a simulation, and the random variation of times.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <replicator/collectives/simulate/simulation.hpp>
#include <replicator/collectives/topology.hpp>
#include <replicator/core/philox.hpp>
#include <vector>

namespace replicator::detail::collectives::detail {

// The cause of a delay: the index of a log entry.
using Cause = std::int64_t;
inline constexpr Cause nothing = -1;

// Each direction of each link serves one message after the other.
class SimulatedNetwork {
 public:
  struct Direction {
    double free = 0;
    Cause last = nothing;  // the message served last
  };

  explicit SimulatedNetwork(const Topology& topology) : topology_{topology} {
    int stride = 1;
    for (std::size_t k = 0; k < topology.dimensions.size(); ++k) {
      strides_.push_back(stride);
      first_.push_back(uses.size());
      for (int unit = 0; unit < topology.ranks() / stride; ++unit)
        for (const bool in : {false, true}) uses.push_back({static_cast<int>(k), unit, in, 0, 0});
      stride *= topology.dimensions[k].size;
    }
    directions_.resize(uses.size());
  }

  // The number of links that a message passes: from the sender's device outwards, then inwards to the receiver's device.
  int hops(int from, int to) const { return 2 * (topology_.distance(from, to) + 1); }
  std::size_t link(int from, int to, int hop) const {
    const int outermost = topology_.distance(from, to);
    const bool in = hop > outermost;
    const auto k = static_cast<std::size_t>(in ? 2 * outermost + 1 - hop : hop);
    return first_[k] + 2 * static_cast<std::size_t>((in ? to : from) / strides_[k]) + (in ? 1 : 0);
  }
  Direction& operator[](std::size_t link) { return directions_[link]; }
  // Microseconds for which the bytes keep a link busy. Also adds them to the link's statistics.
  double use(std::size_t link, std::int64_t bytes, double factor) {
    LinkUse& use = uses[link];
    const double busy =
        static_cast<double>(bytes) / topology_.dimensions[static_cast<std::size_t>(use.dimension)].link.bytes_per_microsecond * factor;
    use.bytes += bytes;
    use.busy += busy;
    return busy;
  }
  double latency(int from, int to) const {
    return topology_.dimensions[static_cast<std::size_t>(topology_.distance(from, to))].link.microseconds;
  }

  std::vector<LinkUse> uses;

 private:
  const Topology& topology_;
  std::vector<Direction> directions_;
  std::vector<int> strides_;        // number of ranks in a unit of each dimension
  std::vector<std::size_t> first_;  // first link of each dimension
};

// Random factors for times: log-normal with mean 1, a function of the seed and of the thing that is timed.
class Chance {
 public:
  Chance(double jitter, std::uint64_t seed) : sigma_{jitter > 0 ? std::sqrt(std::log1p(jitter * jitter)) : 0}, seed_{seed} {}
  double factor(std::uint64_t thing, std::uint32_t of) const {
    if (sigma_ == 0) return 1;
    PhiloxStream words{seed_, thing, of};
    const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(words.uniform())));  // Box, Muller 1958
    const double normal = radius * std::cos(6.283185307179586 * static_cast<double>(words.uniform()));
    return std::exp(sigma_ * normal - sigma_ * sigma_ / 2);
  }

 private:
  double sigma_;
  std::uint64_t seed_;
};

}  // namespace replicator::detail::collectives::detail
