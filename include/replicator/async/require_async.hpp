// SPDX-License-Identifier: Apache-2.0
// Checks that a deployment is possible in the asynchronous regime.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <replicator/async/async_placement.hpp>
#include <replicator/core/error.hpp>
#include <replicator/engine/placement.hpp>
#include <replicator/replicate/deployment.hpp>

namespace replicator::detail {

// The first given flag that needs all replicas at the same step; empty if there is none.
inline std::string_view flag_of_steps(const Deployment& d) {
  const std::pair<bool, std::string_view> given[] = {
      {!d.checkpoint.folder.empty(), "--checkpoint"}, {d.checkpoint.resume, "--resume"}, {!d.see.trace.empty(), "--trace"}, {d.see.timing, "--timing"}, {!d.see.plan.empty(), "--plan"}, {!d.see.dot.empty(), "--dot"}, {d.see.find_nan, "--find-nan"}, {d.see.skew, "--skew"}, {d.see.record.has_value(), "--record"}, {!d.see.replay.empty(), "--replay"}, {d.see.check_drift > 0, "--check-drift"}, {d.see.audit > 0, "--audit"}, {!d.see.hang_report.empty(), "--hang-report"}, {d.elastic, "--elastic"}, {!d.elastic_arbiter.empty(), "--elastic-arbiter"}};
  for (const auto& [is_given, name] : given)
    if (is_given) return name;
  return {};
}

// Throws BuildError with the first flag that the regime does not support.
inline void require_async_possible(const Deployment& d) {
  const std::string cannot = "--regime async cannot be combined with ";
  if (const auto flag = detail::flag_of_steps(d); !flag.empty())
    throw BuildError{cannot + std::string{flag} + ", which needs all replicas at the same step: leave it out, or run with --regime sync"};
  if (!d.topology.empty() || !d.link.empty())
    throw BuildError{cannot + (d.link.empty() ? "--topology" : "--link") +
                     ", by which collectives between all devices are chosen: leave it out, or run with --regime sync"};
  if (d.logical_devices != 1) throw BuildError{cannot + "--logical-devices: a replica is on one device there"};
  for (const auto& device : d.devices)
    if (device.kind != DeviceKind::cpu)
      throw BuildError{cannot + device.text() + ": its shards of variables lie in memory of the host; name cpu devices"};
  if (d.replicas % d.sync_group != 0)
    throw BuildError{"--sync-group is " + std::to_string(d.sync_group) + ", which does not divide the " + std::to_string(d.replicas) +
                     " replicas: groups are of equal size"};
}

// Checks that groups fit the placement of the replicas. Throws the same BuildError on every process of the job.
inline void require_groups_fit(const Deployment& d, const Placement& replicas, int process) {
  const int processes = replicas.process_of_team().back() + 1;
  for (int p = 0, end = 0; p < processes; ++p) {
    end += replicas.replicas_of(p);
    if (const int rest = end % d.sync_group; rest != 0)
      throw BuildError{"--sync-group " + std::to_string(d.sync_group) + " makes a group of replicas " + std::to_string(end - rest) + " to " +
                       std::to_string(end - rest + d.sync_group - 1) + ", of which " + std::to_string(rest) + " would be on process " +
                       std::to_string(p) +
                       " and others on the next: a group is on one process. Choose --replicas, --devices and --sync-group so "
                       "that every process has whole groups, or run with --regime sync"};
  }
  for (int p = 0; p < processes; ++p) {
    const AsyncPlacement placement{d, replicas, p};
    if (placement.groups_here() < placement.devices() && placement.devices() % placement.groups_here() != 0)
      throw BuildError{"--sync-group " + std::to_string(d.sync_group) + " makes " + std::to_string(placement.groups_here()) + " groups for " +
                       std::to_string(placement.devices()) + " devices" + (processes > 1 ? " of process " + std::to_string(p) : std::string{}) +
                       ": name a multiple of " + std::to_string(placement.groups_here()) + ", so that each has as many, or fewer devices than groups"};
  }
  const AsyncPlacement placement{d, replicas, process};
  if (d.staleness && *d.staleness < placement.at_once() - 1)
    throw BuildError{"--staleness is " + std::to_string(*d.staleness) + ", but " + std::to_string(placement.at_once()) +
                     " groups of replicas compute at once on " + std::to_string(placement.devices_of_job()) + " devices" +
                     (processes > 1 ? " of " + std::to_string(processes) + " processes" : std::string{}) + ": the last one to finish misses at least " +
                     std::to_string(placement.at_once() - 1) + " updates. Allow that many, or name fewer --devices"};
}

}  // namespace replicator::detail
