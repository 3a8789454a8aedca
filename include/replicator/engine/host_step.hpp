// SPDX-License-Identifier: Apache-2.0
// HostStep: a step compiled for the devices of this host, and the functions that collect its results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <replicator/engine/placement.hpp>
#include <replicator/engine/see/hang_report.hpp>
#include <replicator/replicate/step_driver.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/handoffs.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/see/trace.hpp>
#include <replicator/runtime/see/trail.hpp>
#include <replicator/runtime/watches.hpp>

namespace replicator::detail {

// The second computation of audited steps: each team does the work of the team before it. Vectors are by the device, or
// team, that does it.
struct SecondComputation {
  std::vector<std::vector<std::uint32_t>> classes;  // by team: those of the replicas
  std::vector<std::unique_ptr<Handoffs>> handoffs;  // by team; null if it has one device
  std::vector<Program> programs;
  std::vector<std::shared_ptr<Trail>> trails;           // of these programs
  std::vector<std::shared_ptr<Trail>> original_trails;  // of the step's own programs, by their devices
  // The input of the replicas of the first team's work, and the words about their next elements, if they belong to
  // another process; else empty.
  std::vector<std::vector<AnyArray>> guest_inputs;
  std::vector<std::uint64_t> guest_words;
  HangReport::Listing listing;  // destroyed first
};

struct HostStep {
  int ordinal = 0;  // the number of the step in its Replicator
  std::uint64_t seed = 0;
  Resolution resolution;
  std::vector<LoweredGraph> lowered;                 // by class
  std::vector<std::unique_ptr<Handoffs>> handoffs;   // by team; null if it has one device
  std::vector<Program> programs;                     // by device
  std::vector<std::shared_ptr<DeviceTrace>> traces;  // by device; empty without a trace
  std::vector<std::unique_ptr<Watches>> watches;     // by device; empty without watches
  std::unique_ptr<SecondComputation> second;         // null without --audit
  HangReport::Listing listing;                       // destroyed first: a hang report may read the other members until then
};

// The block that a replica of any host has put into the exchange of results.
inline const std::byte* exchanged_block(const Program& program, int replica) {
  const auto& exchange = program.exchange;
  return program.collectives[exchange.collective].collective->output() + static_cast<std::size_t>(replica) * exchange.block;
}

inline bool is_exchanged(const Program& program, std::size_t k) { return program.exchange.block != 0 && program.exchange.offsets[k] != 0; }

inline std::vector<AnyArray> exchanged_result(const Program& program, std::size_t k, int replicas) {
  std::vector<AnyArray> values;
  for (int replica = 0; replica < replicas; ++replica) {
    auto& array = values.emplace_back(program.results[k][0].type());
    std::memcpy(array.data(), exchanged_block(program, replica) + program.exchange.offsets[k], array.size_bytes());
  }
  return values;
}

// The results of this host's replicas. The first device of each team has those of the team's replicas.
inline std::vector<AnyArray> own_result(const HostStep& step, std::size_t k, const Placement& placement) {
  std::vector<AnyArray> values;
  for (int team = 0; team < placement.teams(); ++team) {
    const auto& own = step.programs[static_cast<std::size_t>(team * placement.devices_per_team())].results[k];
    values.insert(values.end(), own.begin(), own.end());
  }
  return values;
}

// The results of the step that has just run. `upcoming[r]`: the word about the next element of this host's replica r.
inline StepResults results_of(const HostStep& step, const Placement& placement, std::span<const std::uint64_t> upcoming) {
  const auto& first = step.programs[0];
  const int replicas = placement.blocks().replicas();
  StepResults results;
  for (std::size_t k = 0; k < first.results.size(); ++k) {
    const bool uniform = first.uniform_result[k], exchanged = detail::is_exchanged(first, k);
    results.first.push_back(uniform || exchanged ? 0 : placement.begin());
    if (uniform) results.values.emplace_back(static_cast<std::size_t>(replicas), first.results[k][0]);
    else results.values.push_back(exchanged ? detail::exchanged_result(first, k, replicas) : detail::own_result(step, k, placement));
  }
  results.upcoming.resize(static_cast<std::size_t>(replicas));
  for (int replica = 0; replica < replicas && first.exchange.block != 0; ++replica)
    std::memcpy(&results.upcoming[static_cast<std::size_t>(replica)], detail::exchanged_block(first, replica), sizeof(std::uint64_t));
  std::copy(upcoming.begin(), upcoming.end(), results.upcoming.begin() + placement.begin());
  for (const auto word : results.upcoming) results.sets_differ |= detail::sets_of(word) != detail::sets_of(results.upcoming[0]);
  for (auto& word : results.upcoming) {
    results.stop_signal = std::max(results.stop_signal, stop_signal_of(word));
    results.newcomer |= newcomer_of(word);
    word = without_signs(word);
  }
  results.all_have_next = std::find(results.upcoming.begin(), results.upcoming.end(), no_upcoming) == results.upcoming.end();
  return results;
}

}  // namespace replicator::detail
