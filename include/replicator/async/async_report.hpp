// SPDX-License-Identifier: Apache-2.0
// The text of explain() for a step of the asynchronous regime: groups, shards, updates and staleness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <replicator/async/async_programs.hpp>
#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

inline std::string text_of_shard(std::size_t index, const AsyncShard& shard) {
  const auto what = std::to_string(shard.variables.size()) + " variable(s) from \"" + shard.variables.front() + "\", " + std::to_string(shard.bytes) + " B";
  const auto name = "shard " + std::to_string(index) + " on ";
  if (!shard.gate) return name + "process " + std::to_string(shard.owner) + ", which tells of its updates, " + what + "\n";
  const auto staleness = shard.gate->staleness();
  char counts[160];
  std::snprintf(counts, sizeof counts, ": %lld updates, staleness %.2f in the mean, %lld at most, ", static_cast<long long>(staleness.updates()),
                staleness.mean(), static_cast<long long>(staleness.largest()));
  return name + "device " + std::to_string(shard.device) + ", " + what + counts + (staleness.bound() ? "bound " + std::to_string(*staleness.bound()) : std::string{"no bound"}) + "\n";
}

inline std::string text_of_devices(const AsyncGroup& group, const Deployment& deployment) {
  std::string text;
  for (const auto& member : group.members)
    text += (text.empty() ? "" : " ") + deployment.devices[static_cast<std::size_t>(member.device)].text();
  return text;
}

// `steps`: the number of steps of each group of the job.
inline std::string explain_async(AsyncPrograms& programs, const Deployment& deployment, const std::vector<std::uint64_t>& steps,
                                 const ExplainOptions& options) {
  const auto& placement = programs.placement();
  std::string text = "asynchronous: " + std::to_string(placement.groups()) + " group(s) of " + std::to_string(placement.replicas_of_group()) +
                     " replica(s) on " + std::to_string(placement.devices_of_job()) + " device(s)\nsteps done:";
  for (int g = 0; g < placement.groups(); ++g) {
    const int here = g - placement.first_group(), process = placement.process_of(g);
    text += (g > 0 ? ", " : " ") + std::to_string(steps[static_cast<std::size_t>(g)]) + " by group " + std::to_string(g) + " on " +
            (process == placement.process() ? detail::text_of_devices(*programs.groups()[static_cast<std::size_t>(here)], deployment)
                                            : "process " + std::to_string(process));
  }
  text += "\n";
  for (std::size_t s = 0; s < programs.shards().size(); ++s) text += detail::text_of_shard(s, *programs.shards()[s]);
  const auto& first = *programs.groups()[0];
  text += "of group " + std::to_string(first.index) + ":\n" + explain(first.graphs->resolution, first.members[0].program, nullptr, options);
  for (std::size_t s = 0; s < programs.shards().size(); ++s)
    if (programs.shards()[s]->gate)
      text += "of an update of shard " + std::to_string(s) + ":\n" +
              explain(programs.shards()[s]->resolution, programs.shards()[s]->program, nullptr, options);
  return text;
}

}  // namespace replicator::detail
