// SPDX-License-Identifier: Apache-2.0
// The input and the result of a simulation. Times are in microseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/schedule.hpp>
#include <vector>

namespace replicator::detail::collectives {

// One action of a simulated rank: it computes for a time, starts a collective, or waits for one.
struct SimulatedAction {
  enum class Kind : std::uint8_t {
    compute,
    start,
    wait
  };
  Kind kind = Kind::compute;
  int collective = 0;       // start, wait
  double microseconds = 0;  // compute
};

// A collective to simulate.
struct SimulatedCollective {
  const Schedule* schedule = nullptr;  // outlives the call; must pass `check`
  CollectiveSpec spec;                 // only elements and dtype matter
  int pieces = 1;
};

struct SimulationOptions {
  double jitter = 0;           // relative standard deviation of each time, log-normal: 0.05 for 5 %
  double device_jitter = 0;    // the same for all kernels of a rank together: a slow rank delays all others
  std::uint64_t seed = 0;      // for both jitters
  bool kernels_aside = false;  // kernels run beside the thread that communicates, as on GPUs
  bool spans = false;          // return all spans, for a timeline
  bool critical_path = true;   // large simulations without it and without spans need half the memory
};

// A part of a simulation; times in microseconds.
struct SimulatedSpan {
  enum class Kind : std::uint8_t {
    compute,
    reduce,
    message
  };
  Kind kind = Kind::compute;
  int rank = 0;   // works or sends
  int peer = -1;  // receives
  int collective = -1;
  int piece = 0;
  double begin = 0;
  double end = 0;
};

// The load of one direction of a link.
struct LinkUse {
  int dimension = 0;
  int unit = 0;  // index of the device, host, ...
  bool in = false;
  std::int64_t bytes = 0;
  double busy = 0;  // microseconds
};

// The result of a simulation.
struct Simulation {
  std::vector<double> finish;                // of each rank, in microseconds
  std::vector<SimulatedSpan> critical_path;  // in order; each begins where the one before ends, the last at time()
  std::vector<LinkUse> links;
  std::vector<SimulatedSpan> spans;  // in the order in which they began to be served
  double time() const { return finish.empty() ? 0 : *std::max_element(finish.begin(), finish.end()); }
};

}  // namespace replicator::detail::collectives
