// SPDX-License-Identifier: Apache-2.0
// What a step of the asynchronous regime says of itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <replicator/replicate/async_programs.hpp>
#include <replicator/runtime/explain.hpp>

namespace replicator {

namespace detail {

inline std::string text_of_shard(std::size_t index, const AsyncShard& shard) {
  const auto staleness = shard.gate->staleness();
  char counts[160];
  std::snprintf(counts, sizeof counts, ": %lld updates, staleness %.2f in the mean, %lld at most, ", static_cast<long long>(staleness.updates()),
                staleness.mean(), static_cast<long long>(staleness.largest()));
  return "shard " + std::to_string(index) + " on device " + std::to_string(shard.device) + ", " + std::to_string(shard.variables.size()) +
         " variable(s) from \"" + shard.variables.front() + "\", " + std::to_string(shard.bytes) + " B" + counts +
         (staleness.bound() ? "bound " + std::to_string(*staleness.bound()) : std::string{"no bound"}) + "\n";
}

inline std::string text_of_devices(const AsyncGroup& group, const Deployment& deployment) {
  std::string text;
  for (const auto& member : group.members)
    text += (text.empty() ? "" : " ") + deployment.devices[static_cast<std::size_t>(member.device)].text();
  return text;
}

}  // namespace detail

// `steps`: done by each group.
inline std::string explain_async(AsyncPrograms& programs, const Deployment& deployment, const std::vector<std::uint64_t>& steps,
                                 const ExplainOptions& options) {
  const auto& placement = programs.placement();
  std::string text = "asynchronous: " + std::to_string(placement.groups()) + " group(s) of " + std::to_string(placement.replicas_of_group()) +
                     " replica(s) on " + std::to_string(placement.devices()) + " device(s)\nsteps done:";
  for (std::size_t g = 0; g < steps.size(); ++g)
    text += (g > 0 ? ", " : " ") + std::to_string(steps[g]) + " by group " + std::to_string(g) + " on " +
            detail::text_of_devices(*programs.groups()[g], deployment);
  text += "\n";
  for (std::size_t s = 0; s < programs.shards().size(); ++s) text += detail::text_of_shard(s, *programs.shards()[s]);
  const auto& first = *programs.groups()[0];
  text += "of group 0:\n" + explain(first.graphs->resolution, first.members[0].program, nullptr, options);
  for (std::size_t s = 0; s < programs.shards().size(); ++s)
    text += "of an update of shard " + std::to_string(s) + ":\n" +
            explain(programs.shards()[s]->resolution, programs.shards()[s]->program, nullptr, options);
  return text;
}

}  // namespace replicator
