// SPDX-License-Identifier: Apache-2.0
// Measures the links between the devices and processes of a job, in about a second.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <replicator/collectives/connect/connect_hosts.hpp>
#include <replicator/collectives/connect/measure_links.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/transport/in_process.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

// Measured figures; equal on every process.
struct MeasuredJob {
  std::vector<std::vector<Link>> between;  // [process][process]: the worse of the two sides' figures; unused on the diagonal
  std::vector<Link> inside;                // [process]: between its first two devices; empty where processes have one device
  std::vector<double> reduced;             // [process]: bytes per microsecond of sums
};

namespace detail {

// Calls work(i) on one thread per i, the calling thread taking i = 0. Rethrows the error with the lowest i.
inline void on_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  const auto guarded = [&](std::size_t i) {
    try {
      work(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < count; ++i) threads.emplace_back(guarded, i);
    guarded(0);
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

// [rank of this process][round]
inline std::vector<std::vector<Link>> measure_ranks(const std::vector<std::unique_ptr<Communicator>>& ranks, const std::vector<Groups>& rounds,
                                                    double reduced, int counted, const MeasureOptions& options) {
  std::vector<std::vector<Link>> links(ranks.size());
  on_threads(ranks.size(), [&](std::size_t i) { links[i] = measure_links(*ranks[i], rounds, reduced, counted, options); });
  return links;
}

// All-gathers the measured links of each process: [process].
inline std::vector<std::vector<Link>> exchange_links(transport::Job& job, const std::vector<Link>& mine) {
  static constexpr const char* what = "the exchange of measured links";
  std::vector<std::vector<Link>> all;
  for (const auto& bytes : job.exchange(std::as_bytes(std::span{mine}), what)) {
    transport::require_contribution(bytes.size() == mine.size() * sizeof(Link), static_cast<int>(all.size()), bytes.size(), what);
    auto& theirs = all.emplace_back(mine.size());
    if (!theirs.empty()) std::memcpy(theirs.data(), bytes.data(), bytes.size());
  }
  return all;
}

// The link between the first two devices of this process; all processes measure at once.
inline Link measure_inside(transport::Job& job, const std::string& transport, double reduced, const MeasureOptions& options) {
  const int ranks = 2 * job.size();
  const ReplicaBlocks blocks{ranks, ranks};
  if (job.size() == 1) {
    transport::InProcessGroup group{2};
    std::vector<std::unique_ptr<Communicator>> both;
    for (int rank = 0; rank < 2; ++rank) both.push_back(make_communicator(transport::InProcess{group, rank}, blocks));
    return measure_ranks(both, tournament(2), reduced, ranks, options)[0][0];
  }
  std::vector<int> process_of_rank;
  std::vector<std::vector<int>> pairs;
  for (int process = 0; process < job.size(); ++process) {
    process_of_rank.insert(process_of_rank.end(), 2, process);
    pairs.push_back({2 * process, 2 * process + 1});
  }
  return measure_ranks(connect_hosts(transport, job, process_of_rank, blocks), {Groups{std::move(pairs)}}, reduced, ranks, options)[0][0];
}

// The links of this process to every other one. In a job of odd size, process 0 holds one more rank to make the number
// even.
inline std::vector<Link> measure_between(transport::Job& job, const std::string& transport, double reduced, const MeasureOptions& options) {
  std::vector<int> process_of_rank;
  for (int process = 0; process < job.size(); ++process) process_of_rank.push_back(process);
  if (job.size() % 2 != 0) process_of_rank.push_back(0);
  const auto ranks = static_cast<int>(process_of_rank.size());
  const auto rounds = tournament(ranks);
  const auto links = measure_ranks(connect_hosts(transport, job, process_of_rank, {ranks, ranks}), rounds, reduced, job.size(), options)[0];
  std::vector<Link> result(static_cast<std::size_t>(job.size()));
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    const auto& pair = rounds[round].members(rounds[round].group_of(job.rank()));
    const int partner = pair[0] == job.rank() ? pair[1] : pair[0];
    if (partner < job.size()) result[static_cast<std::size_t>(partner)] = links[round];
  }
  return result;
}

}  // namespace detail

// Collective. `transport`: as in connect_hosts; `devices`: of each process, equal on all. Takes at most about twice
// options.budget, unless a link needs longer for a few megabytes.
template <class = void>
MeasuredJob measure_job(transport::Job& job, const std::string& transport, int devices, const MeasureOptions& options = {}) {
  const double reduced = measure_reduction();
  const auto processes = static_cast<std::size_t>(job.size());
  std::vector<Link> mine{{0, reduced}};
  mine.push_back(devices > 1 ? detail::measure_inside(job, transport, reduced, options) : Link{});
  if (processes > 1) {
    const auto between = detail::measure_between(job, transport, reduced, options);
    mine.insert(mine.end(), between.begin(), between.end());
  }
  const auto all = detail::exchange_links(job, mine);
  MeasuredJob measured;
  measured.between.assign(processes, std::vector<Link>(processes));
  for (std::size_t p = 0; p < processes; ++p) {
    measured.reduced.push_back(all[p][0].bytes_per_microsecond);
    if (devices > 1) measured.inside.push_back(all[p][1]);
    for (std::size_t q = 0; q < processes && processes > 1; ++q) {
      const Link &here = all[p][2 + q], &there = all[q][2 + p];
      measured.between[p][q] = {std::max(here.microseconds, there.microseconds), std::min(here.bytes_per_microsecond, there.bytes_per_microsecond)};
    }
  }
  return measured;
}

namespace detail {

// Medians of latency and of bandwidth, taken separately.
inline Link median_link(const std::vector<Link>& links) {
  std::vector<double> latencies, bandwidths;
  for (const Link& link : links) {
    latencies.push_back(link.microseconds);
    bandwidths.push_back(link.bytes_per_microsecond);
  }
  return {median(std::move(latencies)), median(std::move(bandwidths))};
}

}  // namespace detail

// The links of all pairs of different processes, each pair once.
inline std::vector<Link> links_between(const MeasuredJob& measured) {
  std::vector<Link> links;
  for (std::size_t p = 0; p < measured.between.size(); ++p)
    for (std::size_t q = p + 1; q < measured.between.size(); ++q) links.push_back(measured.between[p][q]);
  return links;
}

// A topology with the median links: {devices of a process, processes}. A dimension of size one is left out.
inline Topology topology_of(const MeasuredJob& measured, int devices) {
  Topology topology;
  if (devices > 1) topology.dimensions.push_back({devices, detail::median_link(measured.inside)});
  if (const auto links = links_between(measured); !links.empty())
    topology.dimensions.push_back({static_cast<int>(measured.between.size()), detail::median_link(links)});
  topology.reduced_bytes_per_microsecond = median(measured.reduced);
  return topology;
}

}  // namespace replicator::detail::collectives
